"""Demangle C++ names (Itanium ABI) and Rust names (legacy and v0)."""

from __future__ import annotations

import functools

from usdt.demangle.bounded import MalformedName

__all__ = ("demangle",)


@functools.lru_cache(1 << 16)
def demangle(name: str) -> str:
    """Return a symbol's name as ``c++filt`` demangles it; unchanged if it is not mangled.

    This function never raises. Suffixes that compilers add (``.cold``, ``.constprop.0``,
    ``.lto_priv.1``) are printed as c++filt does.
    """
    try:
        if name.startswith(("_R", "__R")):
            from usdt.demangle.rust import demangle_v0  # noqa: PLC0415 - seldom needed

            return demangle_v0(name)
        if name.startswith(("_ZN", "__ZN")) and "17h" in name:
            from usdt.demangle.rust import demangle_legacy  # noqa: PLC0415

            found = demangle_legacy(name)
            if found is not None:
                return found
        if name.startswith(("_Z", "__Z", "___Z", "____Z", "_GLOBAL_")):
            from usdt.demangle.cxx import demangle_cxx  # noqa: PLC0415

            return demangle_cxx(name)
    except (MalformedName, RecursionError):
        return name
    return name
