"""The settings of a program: its ``config`` block, and its variables in the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from usdt.base.errors import TracingError
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
_TRAILER = "str_trunc_trailer"
# The names that bpftrace had before, such as that of Debian 12
_OLD = {"strlen": "max_strlen", "map_keys_max": "max_map_keys", "cat_bytes_max": "max_cat_bytes"}
# How settings that are not given are shown
_SHOWN = {"license": "GPL", "missing_probes": "error", "stack_mode": "bpftrace"}
# Settings of bpftrace that have no effect there any more
_FORMER = ("addr", "macro", "map_decl", "tseries", "typeinfo")
# Settings of bpftrace that change nothing here, and their defaults there
_OTHERS: dict[str, int | bool | str] = {
    "cache_user_symbols": "PER_PROGRAM",
    "cpp_demangle": True,
    "lazy_symbolication": True,
    "log_size": 1_000_000,
    "max_bpf_progs": 1024,
    "max_probes": 1024,
    "max_type_res_iterations": 0,
    "on_stack_limit": 32,
    "perf_rb_pages": 0,
    "show_debug_info": False,
    "symbol_source": "",
    "unstable_import": "error",
    "use_blazesym": False,
}


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
        trailer: what is shown behind a string that is longer than ``max_string``.
        record: all settings by name, as config() has them.
    """

    max_string: int
    max_keys: int
    print_maps: bool
    max_cat: int = _DEFAULTS["max_cat_bytes"]
    missing: str = ""
    stack_mode: str = ""
    trailer: str = ".."
    record: tuple[tuple[str, int | bool | str], ...] = ()


def settings_of(program: Program, source: Source) -> Settings:
    """Return the settings: those of the environment, else the program's, else the defaults.

    In the environment their names are ``BPFTRACE_MAX_STRLEN`` and so on.

    Raises:
        ProgramError: a setting is unknown, or out of range.
        TracingError: a variable of the environment is.
    """
    found = dict(_DEFAULTS)
    words = {**dict.fromkeys(_WORDS, ""), _TRAILER: ".."}
    others = dict(_OTHERS)
    for one in program.config.values if program.config is not None else ():
        name = one.name.lower().removeprefix("bpftrace_")
        name = _OLD.get(name, name)
        if name in _DEFAULTS:
            found[name] = _number(one, name, source)
        elif name in _WORDS:
            words[name] = _word(one, _WORDS[name], source)
        elif name == _TRAILER:
            words[name] = _text(one)
        elif name in _OTHERS:
            others[name] = _any(one, others[name])
        elif name.removeprefix("unstable_") not in _FORMER:
            near = closest(name, [*_DEFAULTS, *words, *_OTHERS])
            hint = f"; did you mean {near}?" if near else ""
            raise source.error(one.start, f"unknown setting {one.name!r}{hint}")
    for name in (*_OLD, *_DEFAULTS, *words):
        given = os.environ.get(f"BPFTRACE_{name.upper()}", "")
        if given and name in words:
            words[name] = given if name == _TRAILER else _of(name, given, _WORDS[name])
        elif given:
            found[_OLD.get(name, name)] = _number_of(name, given)
    shown = {**others, **found, **words, "print_maps_on_exit": bool(found["print_maps_on_exit"])}
    for name, default in _SHOWN.items():
        shown[name] = shown[name] or default
    return Settings(
        found["max_strlen"] + 1,
        found["max_map_keys"],
        bool(found["print_maps_on_exit"]),
        found["max_cat_bytes"],
        words["missing_probes"],
        words["stack_mode"],
        words[_TRAILER],
        tuple(sorted(shown.items())),
    )


def _of(name: str, given: str, words: Sequence[str]) -> str:
    # A word of the environment.
    if given not in words:
        raise TracingError(f"BPFTRACE_{name.upper()} is one of {', '.join(words)}, not {given!r}")
    return given


def _number_of(name: str, given: str) -> int:
    # A number of the environment.
    known = _OLD.get(name, name)
    least, most = _least(known), _LIMITS[known]
    if most == 1 and given in ("false", "true"):
        return int(given == "true")
    if not (given.isascii() and given.isdecimal() and least <= int(given[:20]) <= most):
        wanted = f"a number from {least} to {most}, not {given!r}"
        raise TracingError(f"BPFTRACE_{name.upper()} takes {wanted}")
    return int(given)


def _any(one: ConfigValue, default: int | bool | str) -> int | bool | str:  # noqa: FBT001
    # The value of a setting that changes nothing.
    if isinstance(one.value, tree.Integer | tree.Boolean):
        return type(default)(one.value.value) if not isinstance(default, str) else default
    return _text(one) if isinstance(default, str) else default


def _word(one: ConfigValue, words: Sequence[str], source: Source) -> str:
    word = _text(one)
    if word not in words:
        raise source.error(one.start, f"{one.name} is one of {', '.join(words)}")
    return word


def _text(one: ConfigValue) -> str:
    if isinstance(one.value, tree.Identifier):
        return one.value.name
    if isinstance(one.value, tree.String):
        return one.value.value.decode("utf-8", "surrogateescape")
    return ""


def _number(one: ConfigValue, name: str, source: Source) -> int:
    value = one.value
    number = int(value.value) if isinstance(value, tree.Integer | tree.Boolean) else -1
    if not _least(name) <= number <= _LIMITS[name]:
        reason = f"{name} takes a number up to {_LIMITS[name]}"
        raise source.error(one.start, reason)
    return number


def _least(name: str) -> int:
    return int(name != "print_maps_on_exit")
