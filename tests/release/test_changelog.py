"""The changelog has the form of Keep a Changelog, and its newest release is this version."""

from __future__ import annotations

import datetime as dt
import re

from house import ROOT

from usdt.base.version import VERSION

_KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
_HEADING = re.compile(r"\[Unreleased\]|\[(?P<version>\d+\.\d+\.\d+)\] - (?P<date>\d{4}-\d\d-\d\d)")
_LINES = (ROOT / "CHANGELOG.md").read_text().splitlines()


def _headings(mark: str) -> list[str]:
    return [line.removeprefix(mark) for line in _LINES if line.startswith(mark)]


def test_versions_are_headed_with_their_dates_newest_first() -> None:
    headings = [_HEADING.fullmatch(text) for text in _headings("## ")]
    assert all(headings)
    assert len(_headings("## [Unreleased]")) == 1
    assert _headings("## ")[0] == "[Unreleased]"
    dates = [dt.date.fromisoformat(found["date"]) for found in headings[1:]]
    assert dates == sorted(dates, reverse=True)


def test_changes_are_of_the_six_kinds() -> None:
    assert set(_headings("### ")) <= _KINDS
    assert _headings("### ")


def test_the_newest_release_is_this_version() -> None:
    released = [_HEADING.fullmatch(text)["version"] for text in _headings("## ")[1:]]
    assert released[:1] in ([], [VERSION])
