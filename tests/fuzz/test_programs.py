"""Random programs: what they print and keep is what their models say; damaged ones are refused.

Each day has seeds of its own. ``USDT_RANDOM_PROGRAMS`` is the number of programs of each kind,
``USDT_RANDOM_SEED`` the first seed.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from skips import skip_or_fail
from typed_expressions import aggregated, as_type
from typed_programs import damaged, typed_program

import usdt
from usdt.base.errors import LanguageError, NotSupported, ProgramError, VerifierError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typed_expressions import State

_BY_ZERO = "WARNING: Divide or modulo by 0 detected."
_COUNT = int(os.environ.get("USDT_RANDOM_PROGRAMS", "50"))
_FIRST = int(os.environ.get("USDT_RANDOM_SEED", int(time.time()) // 86400 * 1000))


def _ran(text: str) -> tuple[list[Any], Mapping[str, Any]]:
    # What a program has printed, and its maps.
    try:
        with usdt.run(text) as program:
            events = [one for one in program if _BY_ZERO not in one.text]
            printed = [one.value if one.kind == "value" else one.text for one in events]
            return printed, dict(program.maps)
    except NotSupported as err:
        skip_or_fail(err)


def _kept(name: str, entries: Mapping[Any, Any]) -> Any:
    # A map of a model as Python has it.
    match name:
        case "@n" | "@s":
            return entries.get(0)
        case "@k" | "@t":
            return entries
        case "@avg":
            return {key: as_type(sum(all_), "int64") / len(all_) for key, all_ in entries.items()}
    return {key: aggregated(name[1:], all_) for key, all_ in entries.items()}


def _hits(histograms: Mapping[Any, Any]) -> dict[Any, int]:
    return {key: sum(hits for *_, hits in buckets) for key, buckets in histograms.items()}


def _compare(seed: int, text: str, model: State) -> None:
    about = f"USDT_RANDOM_PROGRAMS=1 USDT_RANDOM_SEED={seed}\n{text}"
    try:
        printed, maps = _ran(text)
    except usdt.TracingError as err:
        pytest.fail(f"{about}\n{err}")
    assert printed == model.printed, about
    for name, entries in model.maps.items():
        found = _hits(maps[name]) if name == "@hist" else maps[name]
        assert found == _kept(name, entries), f"{name}: {about}"


def test_programs_print_and_keep_what_their_models_say() -> None:
    for seed in range(_FIRST, _FIRST + _COUNT):
        text, run = typed_program(seed)
        _compare(seed, text, run())


def test_damaged_programs_are_refused_with_a_reason_or_load() -> None:
    reasons: list[str] = []
    for seed in range(_FIRST, _FIRST + _COUNT):
        text = damaged(seed)
        about = f"USDT_RANDOM_PROGRAMS=1 USDT_RANDOM_SEED={seed}\n{text}"
        try:
            with usdt.run(text):
                pass
        except (LanguageError, ProgramError) as err:
            reasons.append(str(err))
        except VerifierError as err:
            pytest.fail(f"{about}\n{err}")
        except NotSupported as err:
            skip_or_fail(err)
    assert all(reason.isprintable() for reason in reasons)
    assert len(reasons) > _COUNT // 3 or _COUNT < 10
