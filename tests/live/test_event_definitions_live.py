"""Each definition given to our parser and to the running kernel: they agree, to the position."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
from definitions import (
    KNOWLEDGE,
    event_definitions,
    function_definitions,
    generated,
    kernel_definitions,
    tracepoint_definitions,
    user_definitions,
)
from patience import patient
from skips import requires_root

from kprobe.events import DefinitionError, Dialect, parse
from kprobe.events.errors import STRICT
from usdt.base.errors import NotSupported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = requires_root

_OWN = (
    *("usdt_check/", "uprobes/p_sh_0x1000", "kprobes/p_vfs_read", "g" * 63, "g/", "g-a/"),
    *("eprobes/", "fprobes/vfs_read", "tracepoints/sched_switch"),
)
_LOGGED = re.compile(r"\w+: error: (.*)\n  Command: (.*)\n( *)\^\n")

_GENERATED = 3000 if patient(1) == 1 else 1000  # in virtual machines

#: Kind → the file it is written to, its definitions, how many of them at least any kernel takes.
_KINDS = {
    "uprobes": ("uprobe_events", user_definitions, 60),
    "kprobes": ("kprobe_events", kernel_definitions, 60),
    "event probes": ("dynamic_events", event_definitions, 15),
    "function probes": ("dynamic_events", function_definitions, 40),
    "tracepoint probes": ("dynamic_events", tracepoint_definitions, 10),
}


@pytest.fixture
def events(tracefs: Path) -> Iterator[Path]:
    """Where tracefs is; what a test has defined is removed."""
    yield tracefs
    for name in ("uprobe_events", "kprobe_events", "dynamic_events"):
        if (tracefs / name).exists():
            _remove(tracefs / name)


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


def _kernel(path: Path, line: str) -> tuple[int, str] | None:
    # Where it complains and of what, None where it is content; -1 where it says nothing.
    log = path.with_name("error_log")
    log.write_text("")
    if _write(path, line):
        _remove(path)
        return None
    told = _LOGGED.findall(log.read_text())
    return (len(told[-1][2]) - 11, told[-1][0]) if told else (-1, "")


def _ours(line: str, dialect: Dialect) -> tuple[int, str] | None:
    try:
        parse(line, dialect)
    except DefinitionError as err:
        return err.column, err.code
    return None


def _agree(line: str, ours: tuple[int, str] | None, theirs: tuple[int, str] | None) -> bool:
    if theirs is not None and _is_knowledge(line, theirs[1]):
        return True
    if ours is not None and ours[1] in STRICT:
        return True  # what the kernel takes for something else than it says
    if ours is None or theirs is None:
        return ours is theirs
    if ":%p" in line:
        return True  # what these stand for moves what is behind them
    return theirs[0] in (ours[0], -1)


def _is_knowledge(line: str, message: str) -> bool:
    # Whether the kernel complains of what no text tells.
    return (
        message.startswith(KNOWLEDGE)
        or ("Invalid probed address" in message and ("nosuch" in line or "@sym" in line))
        or ("Invalid $-variable" in message and line.startswith("e:") and "$9" not in line)
        or ("is already used" in message and "$arg*" in line)
    )


@pytest.mark.parametrize("kind", _KINDS)
def test_the_kernel_agrees_on_every_definition(kind: str, events: Path) -> None:
    file, definitions, least = _KINDS[kind]
    path = events / file
    if not path.exists():
        raise NotSupported(f"CONFIG_{file.upper()}", None)
    dialect = Dialect.running((events / "README").read_text())
    lines = definitions()
    # Linux 6.18 lists event probes in its README even where it is built without them.
    if lines[0][0] not in dialect.kinds or _kernel(path, lines[0]) == (-1, ""):
        assert not any(_write(path, line) for line in lines)
        raise NotSupported(kind, None)
    wrong = []
    accepted = 0
    for line in lines:
        ours, theirs = _ours(line, dialect), _kernel(path, line)
        accepted += theirs is None
        if theirs is None and ours is not None and len(line.split()) == 131 and not dialect.modern:
            continue  # 129 arguments: older kernels take two more than they say
        if not _agree(line, ours, theirs):
            wrong.append(f"{line}: the kernel says {theirs}, we say {ours}")
    assert not wrong, "\n".join(wrong)
    assert accepted >= least


@pytest.mark.parametrize("file", ["uprobe_events", "kprobe_events"])
def test_the_kernel_takes_thousands_of_definitions(file: str, events: Path) -> None:
    path = events / file
    if not path.exists():
        raise NotSupported(f"CONFIG_{file.upper()}", None)
    dialect = Dialect.running((events / "README").read_text())
    made = generated(dialect, _GENERATED, user=file == "uprobe_events")
    gone = [f"-:{one.group}/{one.event}" for one in made]
    pairs = zip(map(str, made), gone, strict=True)
    refused = [line for line, end in pairs if not (_write(path, line) and _write(path, end))]
    assert not refused, "\n".join(refused)
