"""What the definitions of a kernel may say: its types, limits and kinds of probes.

Kernels differ by configuration and backports as well as by version, so the running kernel's
dialect is read from tracefs's README, which lists what it takes; the named ones are those of
mainline (Documentation/trace/kprobetrace.rst and kernel/trace/trace_probe.h of that version).
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
    """One kernel's language.

    Attributes:
        name: the version it is known by, "6.1".
        kinds: first letters of definitions.
        types: names of types, bitfields (``bW@O/C``) apart.
        maximum_arguments, maximum_body, maximum_operations: limits; a body is an argument's text
            behind its name, operations are what it is compiled to.
        variables: whether bare words are parameters, found by BTF.
        all_arguments: ``$arg*``.
        arguments_on_return: ``$argN`` on return probes.
        user_symbols: whether a uprobe takes the type ``symbol``, which means nothing there.
        modern: since Linux 6.5, which made parameters of functions known: a bare word is one, a
            ``$argN`` off a function's entry is told apart, and more of what is wrong is in
            error_log.
        registers: names behind ``%``; None: any.
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
        """The dialect of a mainline version: the newest known that is not newer.

        Raises:
            TracingError: it is no version, or older than 5.10.
        """
        match = re.match(r"(\d+)\.(\d+)", name)
        if not match:
            raise TracingError(f"{name!r} is no kernel version; give one such as 6.1")
        version = int(match[1]), int(match[2])
        if version < (5, 10):
            raise TracingError(f"Linux {name} is too old: 5.10 and newer are known")
        words: dict[str, Any] = {"name": name, "kinds": frozenset("pr"), "types": _OLD}
        for since, changed in _CHANGES:
            if version >= since:
                for key, value in changed.items():
                    words[key] = words[key] | value if isinstance(value, frozenset) else value
        return cls(registers=_REGISTERS.get(machine or os.uname().machine), **words)

    @classmethod
    def running(cls, readme: str = "") -> Self:
        """The dialect of this kernel; ``readme`` is the text of tracefs's README.

        What the README tells comes from it: kernels are patched, and built without BTF.
        """
        found = cls.of(os.uname().release)
        if not readme:
            return found
        kinds = frozenset(re.findall(r"^[ \t]+(?:Format: )?([eft])\S*\[:", readme, re.MULTILINE))
        told = frozenset(name for name in _TOLD if re.search(rf"[ /]{name}[,/]", readme))
        if "char" not in found.types:
            told -= {"char"}  # in the README of Linux 6.1.176, which refuses it
        return cls(
            name=found.name,
            kinds=frozenset("pr") | kinds,
            types=_OLD | told,
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


_TOLD = ("char", "symstr", "%pd", "%pD")  # types that not every kernel has

#: First version → what it brought.
_CHANGES: tuple[tuple[tuple[int, int], dict[str, Any]], ...] = (
    ((5, 15), {"kinds": frozenset("e")}),  # 7491e2c44278
    # symstr b26a124cbfa8; symbols refused for uprobes d4505aa6afae.
    ((6, 3), {"types": frozenset({"char", "symstr"}), "user_symbols": False}),
    # Function probes 334e5519c375, tracepoints e2d0d7b2f42d; parameters b576e09701c7, 18b1e870a496.
    ((6, 5), {"kinds": frozenset("ft"), "variables": True, "all_arguments": True}),
    ((6, 5), {"modern": True}),
    ((6, 9), {"arguments_on_return": True}),  # 25f00e40ce79
    ((6, 10), {"types": frozenset({"%pd", "%pD"})}),  # d9b15224dd8f, 20fe4d07bde6
    ((7, 3), {"maximum_body": 255, "maximum_operations": 8}),
)

#: Machine → names behind ``%`` (regs_query_register_offset() of arch/*/kernel/ptrace.c). Of other
#: machines any name is taken.
_REGISTERS = {
    "x86_64": _names(
        "r15 r14 r13 r12 r11 r10 r9 r8 bx cx dx si di bp ax orig_ax ip cs flags sp ss"
    ),
    "i686": _names("bx cx dx si di bp ax ds es fs gs orig_ax ip cs flags sp ss"),
    "aarch64": _names("lr sp pc pstate") | {f"x{number}" for number in range(30)},
    "s390x": frozenset(f"r{number}" for number in range(16)),
}
