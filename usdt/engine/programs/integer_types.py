"""The names of numbers in programs: those of bpftrace and of C."""

from __future__ import annotations

from usdt.engine.language.c_type_names import NAMED_TYPES

__all__ = ("FLOATS", "INTEGERS")

#: Name → bytes, and whether it is signed.
INTEGERS: dict[str, tuple[int, bool]] = {
    **{f"int{bits}": (bits // 8, True) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (bits // 8, False) for bits in (8, 16, 32, 64)},
    "char": (1, True),
    "signed char": (1, True),
    "unsigned char": (1, False),
    "short": (2, True),
    "unsigned short": (2, False),
    "int": (4, True),
    "unsigned int": (4, False),
    "long": (8, True),
    "unsigned long": (8, False),
    "long long": (8, True),
    "unsigned long long": (8, False),
    **NAMED_TYPES,
}

#: Floating-point numbers, which programs define as members and do not compute with: name → bytes.
FLOATS: dict[str, int] = {"float": 4, "double": 8, "long double": 16}
