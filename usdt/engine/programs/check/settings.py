"""The settings of a program: its ``config`` block, and its variables in the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from usdt.base.frozen import frozen
from usdt.base.text import closest
from usdt.engine.programs.syntax import tree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.programs.syntax.program import ConfigValue, Program
    from usdt.engine.programs.syntax.source import Source

__all__ = ("Settings", "settings_of")

_MOST_STRING = 16 << 10
_MOST_KEYS = 1 << 26
_DEFAULTS = {
    "max_strlen": 1024,
    "max_map_keys": 4096,
    "print_maps_on_exit": 1,
    "max_cat_bytes": 10240,
}
_LIMITS = {
    "max_strlen": _MOST_STRING,
    "max_map_keys": _MOST_KEYS,
    "print_maps_on_exit": 1,
    "max_cat_bytes": 1 << 30,
}
_WORDS = {
    "license": (  # those of which the kernel lets a program call all functions
        *("GPL", "GPL v2", "GPL and additional rights"),
        *("Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL"),
    ),
    "missing_probes": ("error", "warn", "ignore"),
    "stack_mode": ("bpftrace", "perf", "raw", "build_id"),
}
# Settings of bpftrace that change nothing here
_OTHERS = frozenset(
    (
        *("cache_user_symbols", "cpp_demangle", "lazy_symbolication", "log_size"),
        *("max_bpf_progs", "max_probes", "max_type_res_iterations"),
        *("on_stack_limit", "perf_rb_pages", "show_debug_info"),
        *("str_trunc_trailer", "unstable_import", "use_blazesym", "symbol_source"),
    )
)


@frozen
class Settings:
    """The settings of a program.

    Attributes:
        max_string: bytes of a string that is read, with its NUL.
        max_keys: entries of a map that is not declared with a size.
        print_maps: whether maps are printed at the end.
        max_cat: bytes that cat() shows of a file.
        missing: what becomes of an attach point that does not exist: ``error``, ``warn`` or
            ``ignore``; empty: an error, unless its block has others that exist.
        stack_mode: how stacks are shown that do not say it: ``bpftrace``, ``perf``, ``raw``.
    """

    max_string: int
    max_keys: int
    print_maps: bool
    max_cat: int = _DEFAULTS["max_cat_bytes"]
    missing: str = ""
    stack_mode: str = ""


def settings_of(program: Program, source: Source) -> Settings:
    """Return the settings: those of the environment, else the program's, else the defaults.

    In the environment their names are ``BPFTRACE_MAX_STRLEN`` and so on.

    Raises:
        ProgramError: a setting is unknown, or out of range.
    """
    found = dict(_DEFAULTS)
    words = dict.fromkeys(_WORDS, "")
    for one in program.config.values if program.config is not None else ():
        name = one.name.lower().removeprefix("bpftrace_")
        if name in _DEFAULTS:
            found[name] = _number(one, name, source)
        elif name in _WORDS:
            words[name] = _word(one, _WORDS[name], source)
        elif name not in _OTHERS:
            near = closest(name, [*_DEFAULTS, *_WORDS, *_OTHERS])
            hint = f"; did you mean {near}?" if near else ""
            raise source.error(one.start, f"unknown setting {one.name!r}{hint}")
    for name in (*_DEFAULTS, *_WORDS):
        given = os.environ.get(f"BPFTRACE_{name.upper()}", "")
        if name in _WORDS:
            words[name] = given if given in _WORDS[name] else words[name]
        elif given.isdecimal() and given.isascii():
            found[name] = min(int(given), _LIMITS[name])
    return Settings(
        found["max_strlen"],
        found["max_map_keys"],
        bool(found["print_maps_on_exit"]),
        found["max_cat_bytes"],
        words["missing_probes"],
        words["stack_mode"],
    )


def _word(one: ConfigValue, words: Sequence[str], source: Source) -> str:
    word = ""
    if isinstance(one.value, tree.Identifier):
        word = one.value.name
    elif isinstance(one.value, tree.String):
        word = one.value.value.decode(errors="replace")
    if word not in words:
        raise source.error(one.start, f"{one.name} is one of {', '.join(words)}")
    return word


def _number(one: ConfigValue, name: str, source: Source) -> int:
    value = one.value
    number = int(value.value) if isinstance(value, tree.Integer | tree.Boolean) else -1
    if not int(name != "print_maps_on_exit") <= number <= _LIMITS[name]:
        reason = f"{name} takes a number up to {_LIMITS[name]}"
        raise source.error(one.start, reason)
    return number
