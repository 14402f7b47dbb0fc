"""Errors of the whole toolkit: one tree, each message one line.

    TracingError                     anything this toolkit reports
    ├── SyscallError (OSError)       the kernel refused a call; carries errno and the call's name
    │   └── VerifierError            BPF_PROG_LOAD refused; carries the verifier's log
    ├── NotSupported                 this kernel lacks a feature; carries the first kernel with it
    ├── LanguageError (ValueError)   a syntax error in a probe or item; carries the column
    │   └── ProgramError             an error in a program; carries the file, line and column
    ├── ElfError (ValueError)        a file that is not ELF, or damaged
    ├── BtfError (ValueError)        damaged BTF, or a type that is not in it or cannot be shown
    ├── ProbeNotFound (LookupError)  no probe matches
    └── TargetError (LookupError)    no such process, program, library or file, or not reachable
        └── TargetNotFound           it does not exist now; it may come

A message names the object, what was tried, what was found and what to do.
"""

from __future__ import annotations

import os

__all__ = (
    "BtfError",
    "ElfError",
    "LanguageError",
    "NotSupported",
    "ProbeNotFound",
    "ProgramError",
    "SyscallError",
    "TargetError",
    "TargetNotFound",
    "TracingError",
    "VerifierError",
    "with_place",
)


# ENOTSUPP is internal to the kernel, but some calls return it.
_UNKNOWN_TO_LIBC = {524: "Not supported by this kernel (ENOTSUPP)"}


class TracingError(Exception):
    """Base of all errors of this toolkit; ``str()`` is one line, which can always be encoded."""

    def __str__(self) -> str:
        return _encodable(super().__str__())


class SyscallError(TracingError, OSError):
    """A system call failed.

    Attributes:
        errno: the kernel's error number.
        call: the call as in the manual pages, for example ``bpf(BPF_MAP_CREATE)``.
        hint: what to do about it, or "".
    """

    def __init__(self, number: int, call: str, hint: str = "") -> None:
        text = _UNKNOWN_TO_LIBC.get(number)
        super().__init__(number, os.strerror(number) if text is None else text)
        self.call = call
        self.hint = hint

    def __str__(self) -> str:
        tail = f" ({self.hint})" if self.hint else ""
        return _encodable(f"{self.call}: {self.strerror}{tail}")


class VerifierError(SyscallError):
    """The kernel's verifier refused a program; ``log`` is the verifier's log."""

    def __init__(self, number: int, log: str) -> None:
        last = next((line for line in reversed(log.splitlines()) if useful(line)), "")
        super().__init__(number, "bpf(BPF_PROG_LOAD)", last)
        self.log = log


def useful(line: str) -> bool:
    """Return True for a line of a verifier log that gives the reason, not statistics."""
    return bool(line.strip()) and not line.startswith(("processed ", "verification time", "stack "))


class NotSupported(TracingError):  # noqa: N818 - the field's word for it
    """The running kernel lacks a feature.

    Attributes:
        feature: the name of what is missing; a singular, if ``since`` is given.
        since: the first Linux version with it, or None if a configuration option decides.
    """

    def __init__(self, feature: str, since: tuple[int, int] | None = None) -> None:
        self.feature = feature
        self.since = since
        if since is None:
            super().__init__(f"this kernel lacks {feature}")
        else:
            super().__init__(f"{feature} needs Linux {since[0]}.{since[1]} or newer")


def with_place(reason: str, place: str) -> str:
    """Return a reason with its place: ``REASON, PLACE``, and a suggestion, if any, last."""
    known, suggests, name = reason.rpartition("did you mean")
    known = known.rstrip(" ;:,") if suggests and name.endswith("?") else reason
    return f"{known}, {place}{reason[len(known) :]}"


class LanguageError(TracingError, ValueError):
    """A syntax error or wrong name in a probe or item.

    Attributes:
        text: the whole text that was parsed.
        column: 0-based offset of the error in ``text``.
        reason: what was found and what was expected, without the text.
    """

    def __init__(self, text: str, column: int, reason: str) -> None:
        self.text = text
        self.column = column
        self.reason = reason
        super().__init__(
            with_place(reason, f"at column {column + 1} of {_excerpt(text, column)!r}")
        )


class ProgramError(LanguageError):
    """An error in a program of many lines: what is not valid, or what cannot be done.

    Attributes:
        file: the name of the program's file, or what stands for it.
        line: the line, from 1.
        text: that line, each control character in it replaced by a blank.
        column: 0-based offset of the error in that line.
        reason: what was found and what was expected.
    """

    def __init__(self, file: str, program: str, offset: int, reason: str) -> None:
        offset = min(max(offset, 0), len(program))
        begin = program.rfind("\n", 0, offset) + 1
        end = program.find("\n", offset)
        line = program[begin : end if end >= 0 else len(program)]
        text = line if line.isprintable() else "".join(map(_one_column, line))
        super().__init__(text, offset - begin, reason)
        self.file = file
        self.line = program.count("\n", 0, offset) + 1
        self.args = (f"{file}:{self.line}:{self.column + 1}: {reason}",)


def _one_column(character: str) -> str:
    return max(character, " ")


def _encodable(text: str) -> str:
    # Names of files have lone surrogates in place of bytes that are not UTF-8.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _excerpt(text: str, column: int) -> str:
    # The part of a long text around a column.
    start = max(0, column - 60)
    end = max(column + 60, start + 120)
    return f"{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}"


class ElfError(TracingError, ValueError):
    """A file is not ELF, or its headers point outside it."""


class BtfError(TracingError, ValueError):
    """BTF is missing or damaged, or has no such type."""


class ProbeNotFound(TracingError, LookupError):  # noqa: N818 - the field's word for it
    """No probe matches; the message names the closest one."""


class TargetError(TracingError, LookupError):
    """No such process, program, library or file, or it cannot be reached."""


class TargetNotFound(TargetError):  # noqa: N818 - the field's word for it
    """No such process, program, library or file exists now."""
