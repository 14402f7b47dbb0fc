"""The definition syntax of a kernel: its types, limits and kinds of probes.

Kernels differ in configuration and backports as well as in version. The dialect of the running
kernel is therefore read from the README in tracefs, which lists the accepted syntax. Dialects of
versions are those of mainline (Documentation/trace/kprobetrace.rst and kernel/trace/trace_probe.h).
"""

from __future__ import annotations

import os
import re
from typing import Any, Self

from usdt.base.errors import TracingError
from usdt.base.frozen import frozen

__all__ = ("Dialect",)

_INTEGERS = frozenset(f"{sign}{bits}" for sign in "usx" for bits in (8, 16, 32, 64))
_OLD = _INTEGERS | {"string", "ustring", "symbol"}


@frozen
class Dialect:
    """The definition syntax of one kernel.

    Attributes:
        name: the kernel's version, such as "6.1".
        kinds: first letters of definitions.
        types: names of types, without bit fields (``bW@O/C``).
        registers: names accepted after ``%``; None for any.
        maximum_arguments: arguments per definition.
        maximum_body: characters of an argument after ``NAME=``.
        maximum_operations: fetch operations per argument; this many are already too many.
        variables: True if a bare identifier is a parameter, looked up in BTF.
        all_arguments: True if ``$arg*`` is accepted.
        arguments_on_return: True if return probes accept ``$argN``.
        user_symbols: True if uprobes accept the type ``symbol``, which has no meaning there.
        modern: True for Linux 6.5 and newer, which look up the parameters of functions: a bare
            identifier is a parameter, ``$argN`` outside a function's entry has an error of its own,
            and error_log reports more mistakes.
    """

    name: str
    kinds: frozenset[str]
    types: frozenset[str]
    registers: frozenset[str] | None
    maximum_arguments: int = 128
    maximum_body: int = 63
    maximum_operations: int = 16
    variables: bool = False
    all_arguments: bool = False
    arguments_on_return: bool = False
    user_symbols: bool = True
    modern: bool = False

    @classmethod
    def of(cls, name: str, machine: str | None = None) -> Self:
        """Return the dialect of a mainline version.

        Args:
            name: the version; text after ``MAJOR.MINOR`` is ignored.
            machine: the CPU, as ``uname -m`` prints it; None for that of this kernel.

        Raises:
            TracingError: ``name`` is not a version, or older than 5.10.
        """
        match = re.match(r"(\d+)\.(\d+)", name)
        if not match:
            raise TracingError(f"{name!r} is not a kernel version; give one such as 6.1")
        version = int(match[1]), int(match[2])
        if version < (5, 10):
            raise TracingError(f"Linux {name} is too old: Linux 5.10 is the oldest known")
        words: dict[str, Any] = {"name": name, "kinds": frozenset("pr"), "types": _OLD}
        for since, changed in _CHANGES:
            if version >= since:
                for key, value in changed.items():
                    words[key] = words[key] | value if isinstance(value, frozenset) else value
        return cls(registers=_REGISTERS.get(machine or os.uname().machine), **words)

    @classmethod
    def running(cls, readme: str = "") -> Self:
        """Return the dialect of the running kernel; ``readme`` is the text of tracefs's README.

        The README takes precedence over the version, because kernels are patched, or built without
        BTF. Without a README, return the dialect of the mainline version.
        """
        found = cls.of(os.uname().release)
        if not readme:
            return found
        kinds = frozenset(re.findall(r"^[ \t]+(?:Format: )?([eft])\S*\[:", readme, re.MULTILINE))
        listed = frozenset(name for name in _OPTIONAL if re.search(rf"[ /]{name}[,/]", readme))
        if "char" not in found.types:
            listed -= {"char"}  # the README of Linux 6.1.176 lists it, but the kernel refuses it
        return cls(
            name=found.name,
            kinds=frozenset("pr") | kinds,
            types=_OLD | listed,
            registers=found.registers,
            maximum_arguments=found.maximum_arguments,
            maximum_body=found.maximum_body,
            maximum_operations=found.maximum_operations,
            variables="<argname>[->field" in readme,
            all_arguments="$arg*" in readme or "<argname>[->field" in readme,
            arguments_on_return="kernel return probes support: $retval, $arg<N>" in readme,
            user_symbols=found.user_symbols,
            modern=found.modern,
        )


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_OPTIONAL = ("char", "symstr", "%pd", "%pD")  # types that not every kernel has

#: (first version, attributes that it changes).
_CHANGES: tuple[tuple[tuple[int, int], dict[str, Any]], ...] = (
    ((5, 15), {"kinds": frozenset("e")}),  # 7491e2c44278
    # symstr: b26a124cbfa8; type "symbol" refused for uprobes: d4505aa6afae.
    ((6, 3), {"types": frozenset({"char", "symstr"}), "user_symbols": False}),
    # Function probes 334e5519c375, tracepoints e2d0d7b2f42d; parameters b576e09701c7, 18b1e870a496.
    ((6, 5), {"kinds": frozenset("ft"), "variables": True, "all_arguments": True}),
    ((6, 5), {"modern": True}),
    ((6, 9), {"arguments_on_return": True}),  # 25f00e40ce79
    ((6, 10), {"types": frozenset({"%pd", "%pD"})}),  # d9b15224dd8f, 20fe4d07bde6
    # As read in kernel/trace/trace_probe.h of 7.3, not tried on a running kernel.
    ((7, 3), {"maximum_body": 255, "maximum_operations": 8}),
)

#: Machine → names accepted after ``%`` (regs_query_register_offset() in arch/*/kernel/ptrace.c).
#: For other machines, any name is accepted.
_REGISTERS = {
    "x86_64": _names(
        "r15 r14 r13 r12 r11 r10 r9 r8 bx cx dx si di bp ax orig_ax ip cs flags sp ss"
    ),
    "i686": _names("bx cx dx si di bp ax ds es fs gs orig_ax ip cs flags sp ss"),
    "aarch64": _names("lr sp pc pstate") | {f"x{number}" for number in range(30)},
    "s390x": frozenset(f"r{number}" for number in range(16)),
}
