"""The processes of programs, by name, as they start, change their names and end."""

from __future__ import annotations

import subprocess
import sys
import uuid
from typing import TYPE_CHECKING

import pytest
from tracing_tools import until

from usdt.base.errors import TargetNotFound
from usdt.export.programs import Programs

if TYPE_CHECKING:
    from collections.abc import Iterator

RENAME = "import sys; open('/proc/self/comm', 'w').write(sys.argv[1]); input()"


@pytest.fixture
def programs() -> Iterator[Programs]:
    """The processes of this machine."""
    with Programs() as found:
        yield found


def named(programs: Programs, name: str) -> list[int]:
    """The processes of a name; none is no error."""
    programs.look()
    try:
        return programs.named(name)
    except TargetNotFound:
        return []


def test_a_process_that_starts_later_and_ends(programs: Programs) -> None:
    name = f"n{uuid.uuid4().hex[:8]}"
    assert named(programs, name) == []
    for _ in range(2):
        words = [sys.executable, "-c", RENAME, name]
        with subprocess.Popen(words, stdin=subprocess.PIPE) as process:
            until(lambda pid=process.pid: named(programs, name) == [pid], "the process")
            process.communicate(b"\n")
        assert named(programs, name) == []


def test_processes_that_run_already(programs: Programs) -> None:
    name = f"n{uuid.uuid4().hex[:8]}"
    words = [sys.executable, "-c", RENAME, name]
    with (
        subprocess.Popen(words, stdin=subprocess.PIPE) as one,
        subprocess.Popen(words, stdin=subprocess.PIPE) as two,
    ):
        expected = sorted((one.pid, two.pid))
        until(lambda: named(programs, name) == expected, "both")
        assert programs.named(name) == expected, "as often as it is asked"
        one.communicate(b"\n")
        two.communicate(b"\n")


def test_a_name_that_no_process_has(programs: Programs) -> None:
    with pytest.raises(TargetNotFound, match="n0-such-pr0gram: no process of this name"):
        programs.named("n0-such-pr0gram")
