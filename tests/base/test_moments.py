"""Moments as text."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from usdt.base.moments import moment

SECOND = 1_000_000_000
HOUR = 3600


@pytest.fixture(params=["UTC", "Asia/Kolkata", "America/St_Johns"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()


@pytest.fixture(autouse=True)
def _zone_again() -> object:
    yield
    time.tzset()


def ahead(seconds: int) -> int:
    """A whole second to come, since 1970."""
    return int(time.time()) + seconds


@pytest.mark.usefixtures("_zone")
def test_every_form_is_the_same_moment() -> None:
    at = ahead(2 * HOUR)
    local, utc = time.localtime(at), datetime.fromtimestamp(at, UTC)
    forms = [
        f"@{at}",
        time.strftime("%H:%M:%S", local),
        time.strftime("%Y-%m-%dT%H:%M:%S", local),
        time.strftime("%Y-%m-%d %H:%M:%S", local),
        utc.strftime("%Y-%m-%dT%H:%M:%SZ"),
        utc.strftime("%Y-%m-%dT%H:%M:%S+00:00"),
        datetime.fromtimestamp(at).astimezone().isoformat(),
    ]
    assert {form: moment(form) for form in forms} == dict.fromkeys(forms, at * SECOND)


def test_nanoseconds_are_kept() -> None:
    at = ahead(HOUR)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at))
    assert moment(f"{text}.000000001") == moment(f"@{at}.000000001") == at * SECOND + 1
    assert moment(f"{text}.5") == moment(f"@{at}.5") == at * SECOND + SECOND // 2


def test_a_time_of_day_is_the_next_one() -> None:
    for text in ("00:00", "07:30", "12:00:01", "23:59:59"):
        found = moment(text)
        assert 0 < found - time.time_ns() <= 25 * HOUR * SECOND
        assert time.strftime("%H:%M:%S", time.localtime(found // SECOND)).startswith(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("@1", "ago; give a time to come", id="the past"),
        pytest.param("2020-01-01T00:00:00Z", "ago; give a time to come", id="a date in the past"),
        pytest.param("@999999999999", "more than 366 days ahead", id="far ahead"),
        pytest.param("9999-12-31T23:59:59Z", "more than 366 days ahead", id="the last date"),
        pytest.param("25:00", "25:00 is no time: hour must be in 0..23", id="hour 25"),
        pytest.param("2026-02-30T00:00:00Z", "is no time: day ", id="30 February"),
        pytest.param("noon", "'noon' is no time; write 14:30", id="a word"),
        pytest.param("", "'' is no time; write 14:30", id="nothing"),
        pytest.param("@" + "9" * 5000, "is no time; write", id="many digits"),
        pytest.param("0001-01-01T00:00:00", "0001-01-01T00:00:00", id="the first date"),
        pytest.param("14:30\n", "is no time; write", id="a line feed"),
    ],
)
def test_what_is_no_moment_to_come(text: str, error: str) -> None:
    with pytest.raises(ValueError, match="(?s)" + __import__("re").escape(error)):
        moment(text)
