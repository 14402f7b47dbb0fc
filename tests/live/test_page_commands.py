"""The commands of pages run as they stand, on programs that have these probes."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import pytest
import service_processes
from house import ROOT

if not (ROOT / "README.md").exists():
    pytest.skip("needs README.md, which virtual machines lack", allow_module_level=True)

from test_readme import needs_python, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.usefixtures("ringbuf", "cookies", "vmlinux_btf"), needs_python]

# A command of a block, up to the column that says what it does, or a comment.
_COMMAND = re.compile(
    r"^(?: {4}\$ | {4}|\$ )(?:sudo )?((?:usdt|kprobe) .*?)(?: {2,}\S.*| # .*)?$", re.MULTILINE
)
# Programs that only the reader has, and what needs minutes.
_LEFT_OUT = re.compile(r"myapp|hotspot|\./server|run-tests|make -j4|from-server|loop -q|\bten\b")

# What writes the files of earlier runs that commands read.
_MADE = (
    "usdt count -p $CXX uprobe:libc:malloc --by ustack --json -n 1 > web1.json",
    "tee web2.json before.json after.json < web1.json",
    "usdt record -p $PSQL 'postgresql:query__start' --ustack -o queries.usdt -n 1",
    "tee web1.usdt web2.usdt < queries.usdt | wc -c",
    "head -c 5000 queries.usdt > cut.usdt",
    "echo 'import gc; [gc.collect() for _ in range(9)]' > work.py",
)


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with those files, and processes whose IDs the shell knows.

    A server of PostgreSQL that runs statements, Python, a program that allocates.
    """
    folder = tmp_path_factory.mktemp("programs")
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        for programs in (
            service_processes.python(folder),
            service_processes.server(folder),
            service_processes.postgresql(),
        ):
            for name, pid in stack.enter_context(programs).items():
                patch.setenv(name, str(pid))
        patch.chdir(folder)
        for making in _MADE:
            assert run(making)[1] == 0, making
        yield folder


def _commands(page: str) -> list[str]:
    found = _COMMAND.findall((ROOT / "docs" / f"{page}.md").read_text())
    return [command for command in found if not _LEFT_OUT.search(command)]


def _on_these(command: str) -> str:
    # The command with a process that has its probes, until the first hit; no query is slow.
    process = "$CXX" if "libc:" in command else "$PSQL" if "postgresql:" in command else "$PYTHON"
    command = re.sub(r"-p (PID|1234)\b", f"-p {process}", command)
    command = command.replace("python3.11 work", "/usr/bin/python3.11 work")
    if not re.match(r"usdt (report|merge|flame|features)", command):
        command = re.sub(r" (-d|--slower) \S+", "", command)
        command = re.sub(r"^(usdt|kprobe) (\w+)", r"\1 \2 -n 1", command)
    return command


@pytest.mark.parametrize(
    ("page", "least"),
    [
        pytest.param("stacks", 6, id="stacks"),
        pytest.param("report-pages", 5, id="report pages"),
        pytest.param("parquet", 5, id="Parquet"),
        pytest.param("following", 3, id="children"),
        pytest.param("recordings", 8, id="recordings"),
        pytest.param("privileges", 4, id="privileges"),
    ],
)
def test_the_commands_of_a_page_run(page: str, least: int, surroundings: Path) -> None:
    commands = _commands(page)
    assert len(commands) >= least
    for command in map(_on_these, commands):
        lines, code = run(command)
        assert code == 0, (command, lines)
        if " cut." in command:
            assert any("without a closing block" in line for line in lines), lines
        else:
            assert not any(line.startswith("0 events") for line in lines), (command, lines)
        for name in re.findall(r"(?:-o|--flame|--html|>) ([\w.-]+)$", command):
            assert (surroundings / name).stat().st_size > 0, command
