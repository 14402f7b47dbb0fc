"""Names and numbers of errors: those of errno(3), and those that only the kernel sees."""

from __future__ import annotations

import errno

__all__ = ("ERROR_NUMBERS", "error_name")

# include/linux/errno.h: results within the kernel, for a restart of the call or of a driver
_OF_KERNEL = {
    "ERESTARTSYS": 512,
    "ERESTARTNOINTR": 513,
    "ERESTARTNOHAND": 514,
    "ENOIOCTLCMD": 515,
    "ERESTART_RESTARTBLOCK": 516,
    "EPROBE_DEFER": 517,
    "EOPENSTALE": 518,
    "ENOPARAM": 519,
    "ENOTSUPP": 524,
}
_NAMES = {**{number: name for name, number in _OF_KERNEL.items()}, **errno.errorcode}

#: Name → number, also of names that share a number: EAGAIN and EWOULDBLOCK.
ERROR_NUMBERS = _OF_KERNEL | {
    name: number for name, number in vars(errno).items() if name[0] == "E" and name.isupper()
}


def error_name(number: int) -> str | None:
    """Return the name of an error number, or None if it has none."""
    return _NAMES.get(number)
