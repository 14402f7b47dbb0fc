"""Man pages: one for each command, that two formatters take without a word."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import click
import pytest
import skips
from house import ROOT

from kprobe.cli.group import kprobe
from usdt.cli.group import usdt

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man1")
    command = [sys.executable, ROOT / "tools" / "man_pages.py", folder]
    subprocess.run(command, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}, check=True)
    return folder


def _names(group: click.Group, name: str) -> set[str]:
    context = click.Context(group, info_name=name)
    names = {name}
    for one in group.list_commands(context):
        command = group.get_command(context, one)
        more = _names(command, f"{name}-{one}") if isinstance(command, click.Group) else set()
        names |= {f"{name}-{one}", *more}
    return names


def _shown(page: Path) -> str:
    skips.need_program("mandoc", "mandoc")
    done = subprocess.run(["mandoc", "-Tutf8", page], capture_output=True, text=True, check=True)
    return re.sub(".\b", "", done.stdout)


def test_each_command_has_a_page(pages: Path) -> None:
    names = {path.name.removesuffix(".1") for path in pages.iterdir()}
    assert names == _names(usdt, "usdt") | _names(kprobe, "kprobe")
    assert "kprobe-event-define" in names


def test_mandoc_has_nothing_to_say(pages: Path) -> None:
    skips.need_program("mandoc", "mandoc")
    command = ["mandoc", "-Tlint", "-Wwarning", *sorted(pages.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout + done.stderr, done.returncode) == ("", 0)


@pytest.mark.parametrize("name", ["usdt", "usdt-trace", "kprobe-event-define"])
def test_man_has_nothing_to_say(pages: Path, name: str) -> None:
    skips.need_program("man", "man-db")
    command = ["man", "--warnings", "-E", "UTF-8", "-l", pages / f"{name}.1"]
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)
    assert "NAME" in done.stdout


def test_examples_can_be_copied_from_a_page(pages: Path) -> None:
    assert "  usdt trace -p 1234 'python:gc__start(arg0)'\n" in _shown(pages / "usdt-trace.1")


def test_a_page_has_what_the_help_has(pages: Path) -> None:
    shown = " ".join(_shown(pages / "usdt-trace.1").split())
    assert "-p, --pid PID Trace this process, by its ID, or all of this name" in shown
    assert "-h, --help Show this message and exit." in shown
    shown = " ".join(_shown(pages / "usdt.1").split())
    assert "tracepoint:sched:sched_switch a tracepoint" in shown
    assert "usdt-trace(1)" in shown
    assert "2023-11-14" in shown
