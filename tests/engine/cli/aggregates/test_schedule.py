"""The moments at which aggregates are read."""

from __future__ import annotations

import math
import time

import pytest

from usdt.engine.cli.aggregates.schedule import Schedule


@pytest.mark.parametrize("pause", [0.02, 0.01, 0.03])
def test_aligned_moments_are_multiples_since_1970(pause: float) -> None:
    schedule = Schedule(pause, aligned=True)
    step = round(pause * 1e9)
    ends = []
    while len(ends) < 3:
        time.sleep(max(0.0, schedule.left()))
        if schedule.take():
            ends.append(schedule.end)
            assert schedule.end <= time.time_ns()
    assert not [end for end in ends if end % step]
    assert ends == sorted(set(ends))


def test_missed_moments_are_skipped() -> None:
    schedule = Schedule(0.01, aligned=True)
    time.sleep(0.05)
    assert schedule.take()
    assert time.time_ns() - schedule.end < 1_000_000_000
    assert schedule.left() <= 0.01


def test_intervals_that_a_run_has_cut_are_partial() -> None:
    at = (time.time_ns() // 250_000_000 + 1) * 250_000_000 + 125_000_000
    schedule = Schedule(0.25, aligned=True, at=at)
    partial = []
    while len(partial) < 2:
        time.sleep(max(0.0, schedule.left()))
        if schedule.take():
            partial.append(schedule.partial)
    assert partial == [True, False]
    schedule.stop()
    assert schedule.partial


def test_a_run_that_begins_and_ends_at_multiples_has_whole_intervals() -> None:
    at = (time.time_ns() // 20_000_000 + 6) * 20_000_000
    schedule = Schedule(0.02, aligned=True, at=at)
    time.sleep((at - time.time_ns()) / 1e9 + 0.02)
    schedule.stop()
    assert (schedule.end, schedule.partial) == (at + 20_000_000, False)


def test_a_run_that_ends_early_names_the_moment_to_come() -> None:
    schedule = Schedule(3600, aligned=True)
    assert not schedule.take()
    schedule.stop()
    assert schedule.end % 3_600_000_000_000 == 0
    assert 0 < schedule.end - time.time_ns() <= 3_600_000_000_000


def test_other_moments_begin_now() -> None:
    schedule = Schedule(3600)
    assert 3599 < schedule.left() <= 3600
    assert not schedule.take()


@pytest.mark.parametrize("aligned", [True, False])
def test_no_moment_is_before_the_beginning(aligned: bool) -> None:
    at = time.time_ns() + 50_000_000
    schedule = Schedule(0.02, aligned=aligned, at=at)
    assert 0.03 < schedule.left() <= 0.07
    assert not schedule.take()
    time.sleep(schedule.left())
    assert time.time_ns() > at
    assert schedule.take()


def test_intervals_begin_at_the_beginning() -> None:
    at = time.time_ns() + 30_000_000
    schedule = Schedule(3600, at=at)
    assert abs(schedule.left() - 3600 - (at - time.time_ns()) / 1e9) < 1


def test_a_beginning_that_has_passed_is_now() -> None:
    schedule = Schedule(3600, at=time.time_ns() - 1)
    assert 3599 < schedule.left() <= 3600


def test_without_a_pause_there_is_no_moment() -> None:
    schedule = Schedule(math.inf)
    assert schedule.left() == math.inf
    assert not schedule.take()
