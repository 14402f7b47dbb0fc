"""Each definition given to our parser and to the running kernel: they agree, to the position."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
from definitions import kernel_definitions, user_definitions
from skips import requires_root

from bpf.errors import NotSupported
from kprobe.events import DefinitionError, Dialect, parse

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = requires_root

_OWN = ("usdt_check/", "uprobes/p_sh_0x1000", "kprobes/p_vfs_read", "g" * 63, "g/", "g-a/")
_LOGGED = re.compile(r"trace_[ku]probe: error: (.*)\n  Command: (.*)\n( *)\^\n")


@pytest.fixture(params=["uprobe_events", "kprobe_events"])
def events(tracefs: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    path: Path = tracefs / request.param
    if not path.exists():
        raise NotSupported(f"CONFIG_{request.param.upper()}", None)
    yield path
    _remove(path)


def _write(path: Path, line: str) -> bool:
    # One line by one write(2): appended, for "w" would delete everybody's events.
    number = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(number, line.encode() + b"\n")
    except OSError:
        return False
    finally:
        os.close(number)
    return True


def _remove(path: Path) -> None:
    for line in path.read_text().splitlines():
        name = line.split()[0].partition(":")[2]
        if name.startswith(("usdt_check/", *_OWN)):
            _write(path, f"-:{name}")


def _kernel(path: Path, line: str) -> int | None:
    # The position of what it complains of, None where it is content; -1 where it says nothing.
    log = path.with_name("error_log")
    log.write_text("")
    if _write(path, line):
        _remove(path)
        return None
    told = _LOGGED.findall(log.read_text())
    return len(told[-1][2]) - 11 if told else -1


def test_the_kernel_agrees_on_every_definition(events: Path) -> None:
    dialect = Dialect.running((events.parent / "README").read_text())
    wrong = []
    accepted = 0
    for line in (user_definitions if events.name == "uprobe_events" else kernel_definitions)():
        theirs = _kernel(events, line)
        try:
            parse(line, dialect)
            ours = None
        except DefinitionError as err:
            ours = err.column
        accepted += theirs is None
        if theirs is None and ours is not None and len(line.split()) == 131 and not dialect.modern:
            continue  # 129 arguments: older kernels take two more than they say
        if ours != theirs and not (theirs == -1 and ours is not None):
            wrong.append(f"{line}: the kernel says {theirs}, we say {ours}")
    assert not wrong
    assert accepted > 60
