"""The examples of docs/services.md, and those of README.md with services, on running services."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import debian
import pytest
import service_processes
from house import ROOT
from skips import need_program
from test_readme import README, consoles, run, shape
from tracing_tools import run_usdt

from usdt.probes.probe import read_probes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies")

_PAGE = (ROOT / "docs/services.md").read_text()
_EXAMPLES = consoles(_PAGE)
# What takes any number of lines, and has other numbers each time.
_TABLE = re.compile(r"\[.*\) +\d+ \|[@ ]*\|$|count \d+, min .*")
_OF_PROCESSES = re.findall(r"^    (usdt \S+ .*-p PID.*?)(?: +#.*)?$", README, re.MULTILINE)
_TARGETS = {
    "postgresql:query__start syscall:fdatasync": "WRITER",
    "postgresql:": "PSQL",
    "hotspot:": "JAVA",
    "python:": "PYTHON",
    "pystack": "PYTHON",
    "libstdcxx:": "CXX",
    "uprobe:": "CXX",
}


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of the examples: the process IDs of running services."""
    folder = tmp_path_factory.mktemp("services")
    with contextlib.ExitStack() as stack:
        pids = stack.enter_context(service_processes.postgresql())
        for start in (
            service_processes.python,
            service_processes.java,
            service_processes.server,
        ):
            pids |= stack.enter_context(start(folder))
        yield {name: str(pid) for name, pid in pids.items()}


def _told(lines: list[str]) -> set[str]:
    # What does not change from run to run: all but numbers, units of times, and a script's folder.
    kept = [re.sub(r'"/\S*/', '"/', line) for line in lines if not _TABLE.match(line)]
    return {re.sub(r"\bN ?(ns|us|ms|s)\b", "N", shape(line)) for line in kept}


@pytest.mark.parametrize(("command", "shown"), _EXAMPLES, ids=[c for c, _ in _EXAMPLES])
def test_examples_print_what_is_shown(
    command: str, shown: list[str], services: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, pid in services.items():
        monkeypatch.setenv(name, pid)
    lines, code = run(command)
    assert code == 0, lines
    assert _told(shown) <= _told(lines), lines
    assert (_closing(lines) > 0) is ("0 events, 0 lost" not in shown)


def _closing(lines: list[str]) -> int:
    (found,) = (m for line in lines if (m := re.fullmatch(r"(\d+) events?, 0 lost", line)))
    return int(found[1])


@pytest.mark.parametrize("command", _OF_PROCESSES)
def test_examples_of_the_readme_see_hits(
    command: str, services: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = next(target for part, target in _TARGETS.items() if part in command)
    lines, code = run(command.replace("PID", services[target]).replace("-p", "-n 1 -p", 1))
    assert code == 0, lines
    assert _closing(lines) > 0
    assert not [line for line in lines if line.startswith(("Error", "no probe"))]


_MEANT = "nearest is postgresql:query__start (list them with: usdt list -p {pid})"


@pytest.mark.parametrize(
    ("probe", "code", "said"),
    [
        ("postgresql:query__strat", 1, f"no probe postgresql:query__strat; {_MEANT}"),
        ("postgres:query__start", 1, f"no probe postgres:query__start; {_MEANT}"),
        ("query__strat", 0, "a library with it; did you mean postgresql:query__start?"),
    ],
)
def test_a_misspelt_probe_of_a_service_is_named_at_once(
    probe: str, code: int, said: str, services: dict[str, str]
) -> None:
    done = run_usdt("trace", "-d", "0.1", "-p", services["PSQL"], probe)
    assert done.returncode == code
    assert said.format(pid=services["PSQL"]) in done.stderr


def test_a_server_whose_children_serve_says_so(services: dict[str, str]) -> None:
    done = run_usdt("trace", "-d", "0.1", "-p", services["SERVER"], "postgresql:query__start")
    assert f"process {services['SERVER']} (postgres): no hits so far, and its child" in done.stderr
    assert "add -f" in done.stderr


def test_the_probes_of_python_are_those_of_the_table() -> None:
    table = re.findall(r"^\| (`[^|]*) \|.*\| (3\.11[^|]*) \|$", _PAGE, re.MULTILINE)
    pythons = {
        "3.11": need_program(service_processes.PYTHON, "python3.11"),
        "3.13": debian.files("python3.13-minimal", suite="trixie") / "usr/bin/python3.13",
    }
    for version, path in pythons.items():
        there = {probe.name.split("__")[0] for probe in read_probes(path).probes}
        told = {
            name.split("__")[0]
            for names, versions in table
            for name in re.findall(r"`(\w+)`", names)
            if version in versions.split(", ")
        }
        assert there == told, version


def test_every_service_has_examples() -> None:
    used = {name for command, _ in _EXAMPLES for name in re.findall(r"\$([A-Z]+)", command)}
    assert used == {"PSQL", "DRIVER", "WRITER", "SERVER", "PYTHON", "JAVA"}
    assert len(_OF_PROCESSES) >= 12
