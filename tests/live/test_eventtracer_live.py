"""The kernel's event tracer on uprobes of this kernel: nothing lost, in order, nothing left."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from fixtures import build
from house import ROOT
from patience import patient
from tracing_tools import private

import usdt
from usdt.base.errors import TracingError
from usdt.tracefs import mount as location
from usdt.tracefs.definitions import (
    DefinedEvent,
    define_event,
    list_events,
    orphaned_events,
    remove_event,
)
from usdt.tracefs.format import Printer, parse_format
from usdt.tracefs.instance import Instance, orphaned_instances, remove_instance
from usdt.tracefs.owner import is_orphan, is_ours, own_name
from usdt.tracefs.session import EventRequest, EventSession
from usdt.tracefs.trace_pipe_reader import RawRecord, TracePipeReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HITS = 200_000 if patient(1) == 1 else 50_000  # in virtual machines
BUFFER = 8 << 20  # what commands take by default

_LINE = re.compile(
    r" *(?P<comm>.+)-(?P<pid>\d+) +\[(?P<cpu>\d+)\] \S+ +(?P<time>[\d.]+): (?P<rest>.*)"
)


class Loop:
    """The tight loop, with an event on its probe."""

    def __init__(self, program: Path, root: Path) -> None:
        self.program = program
        self.root = root
        (probe,) = usdt.list_probes(str(program), pattern="loop:hit")
        # The site of the quiet loop: the round is in the first argument.
        self.site = probe.sites[0]
        register = self.site.args.split("@%")[1].split()[0].removeprefix("r")
        name = f"{own_name()}/hit"
        text = f"p:{name} {program}:{self.site.offset:#x} round=%{register}:u64"
        self.event = define_event(root, "uprobe_events", text, name)

    def run(self, hits: int) -> None:
        """Hit it."""
        subprocess.run([self.program, "-q", "-n", str(hits)], check=True, capture_output=True)


@pytest.fixture
def loop(tmp_path: Path, tracefs: Path) -> Iterator[Loop]:
    made = Loop(private(build("default", "loop"), tmp_path), tracefs)
    yield made
    remove_event(tracefs, made.event)
    assert made.event.name not in [event.name for event, _ in list_events(tracefs)]


def test_every_hit_is_read_in_order(loop: Loop) -> None:
    watched = EventRequest(None, "", loop.event.name)
    with EventSession(loop.root, [watched], buffer=BUFFER) as session:
        loop.run(HITS)
        hits = session.read()
        session.stop()
        while more := session.read(everything=True):
            hits += more
        assert (session.lost(), session.damaged, session.unknown_records) == (0, 0, 0)
    assert [hit.values["round"] for hit in hits] == list(range(HITS))
    times = [hit.time for hit in hits]
    assert times == sorted(times)


def _recorded(loop: Loop, hits: int, condition: str = "") -> tuple[list[RawRecord], str]:
    """What is in the buffer after so many hits: as records, and as the kernel's text."""
    with Instance(loop.root, buffer=BUFFER) as instance:
        intake = TracePipeReader(loop.root, instance.path)
        try:
            if condition:
                instance.filter(loop.event.name, condition)
            instance.enable(loop.event.name)
            instance.start()
            loop.run(hits)
            instance.disable()
            text = (instance.path / "trace").read_text()
            intake.start()
            intake.stop_and_drain()
            found: list[RawRecord] = []
            while not intake.empty:
                found += intake.take(everything=True)
            assert (instance.dropped(), intake.damaged) == (0, 0)
        finally:
            intake.close()
    assert not instance.path.exists()
    return found, text


def test_records_are_what_the_kernels_text_says(loop: Loop) -> None:
    form = parse_format((loop.root / "events" / loop.event.name / "format").read_text())
    records, text = _recorded(loop, HITS // 20)
    lines = [found for line in text.splitlines() if (found := _LINE.fullmatch(line))]
    assert len(lines) == len(records) == HITS // 20
    printer = Printer(form)
    for (when, cpu, data), line in zip(records, lines, strict=True):
        values = form.decode(data)
        shown = printer.text(values).replace("(", "(0x", 1)  # which print fmt leaves out
        assert line["rest"] == f"{loop.event.name.partition('/')[2]}: {shown}"
        assert (int(line["pid"]), int(line["cpu"])) == (values["common_pid"], cpu)
        assert abs(float(line["time"]) - when / 1e9) < 1e-6


def test_a_filter_lets_through_what_it_says(loop: Loop) -> None:
    assert len(_recorded(loop, 1000, "round < 3 || round == 10")[0]) == 4
    with Instance(loop.root, buffer=1 << 20) as instance:
        with pytest.raises(TracingError, match=r"refused: .*Field not found") as caught:
            instance.filter(loop.event.name, "nothing == 3")
        assert "\n" not in str(caught.value)


def test_the_kernel_tells_what_it_refuses(tracefs: Path) -> None:
    with pytest.raises(TracingError, match="Invalid register name, at column 25"):
        define_event(tracefs, "uprobe_events", "p:usdt_x/e /bin/sh:0x10 %nothing", "usdt_x/e")
    with pytest.raises(TracingError, match="Failed to find the given file, at column 12"):
        define_event(tracefs, "uprobe_events", "p:usdt_x/e /nowhere:0x10", "usdt_x/e")


def test_what_a_killed_run_left_is_found(tmp_path: Path, tracefs: Path) -> None:
    program = private(build("default", "loop"), tmp_path)
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from usdt.tracefs.definitions import define_event\n"
        "from usdt.tracefs.instance import Instance\n"
        "from usdt.tracefs.owner import own_name\n"
        "root, name = Path(sys.argv[1]), own_name() + '/hit'\n"
        "define_event(root, 'uprobe_events', f'p:{name} {sys.argv[2]}:0x10', name)\n"
        "instance = Instance(root, buffer=1 << 20)\n"
        "print(own_name(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    words = [sys.executable, "-c", script, tracefs, program]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    name = done.stdout.strip()
    assert is_orphan(name), done.stderr
    left = [event for event in orphaned_events(tracefs) if event.name.startswith(name)]
    places = [path for path in orphaned_instances(tracefs) if path.name.startswith(name)]
    assert (len(left), len(places)) == (1, 1)
    for place in places:
        remove_instance(place)
    for event in left:
        remove_event(tracefs, event)
    assert not [event for event in orphaned_events(tracefs) if event.name.startswith(name)]


def test_names_tell_their_owner() -> None:
    assert is_ours(own_name())
    assert is_ours(own_name(3))
    assert not is_orphan(own_name())
    assert is_orphan("usdt_1_1")
    assert not is_orphan("syscalls")
    assert not is_orphan("usdt_x_1")


def test_an_event_that_is_gone_is_removed_all_the_same(tracefs: Path) -> None:
    remove_event(tracefs, DefinedEvent("uprobe_events", f"{own_name()}/nothing"))
    assert location.find_tracefs() is not None
