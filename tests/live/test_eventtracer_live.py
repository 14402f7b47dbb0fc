"""The kernel's event tracer on uprobes of this kernel: nothing lost, in order, nothing left."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from fixtures import build
from house import ROOT
from tracing_tools import private

import usdt
from bpf import tracefs as location
from bpf.errors import TracingError
from tracing.eventformat import Printer, parse_format
from tracing.eventtracer.definitions import Defined, define, listed, orphans, remove
from tracing.eventtracer.instance import Instance, orphaned_instances, remove_instance
from tracing.eventtracer.owner import is_orphan, is_ours, own_name
from tracing.eventtracer.reader import RawReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HITS = 200_000


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
        self.event = define(root, "uprobe_events", text, name)

    def run(self) -> None:
        """Hit it."""
        subprocess.run([self.program, "-q", "-n", str(HITS)], check=True, capture_output=True)


@pytest.fixture
def loop(tmp_path: Path, tracefs: Path) -> Iterator[Loop]:
    made = Loop(private(build("default", "loop"), tmp_path), tracefs)
    yield made
    remove(tracefs, made.event)
    assert made.event.name not in [event.name for event, _ in listed(tracefs)]


def test_every_hit_is_read_in_order(loop: Loop) -> None:
    with (
        Instance(loop.root, buffer=32 << 20) as instance,
        RawReader(loop.root, instance.path) as reader,
    ):
        text = (instance.path / "events" / loop.event.name / "format").read_text()
        form = parse_format(text)
        instance.enable(loop.event.name)
        instance.start()
        loop.run()
        records = reader.read() + reader.read()
        while more := reader.read(everything=True):
            records += more
        assert (reader.lost, reader.uncounted, reader.damaged) == (0, False, 0)
        path = instance.path
    assert not path.exists()
    rounds = [form.decode(record)["round"] for _, _, record in records]
    assert rounds == list(range(HITS))
    times = [time for time, _, _ in records]
    assert times == sorted(times)
    assert Printer(form).text(form.decode(records[5][2])).endswith("round=5")


def test_a_filter_lets_through_what_it_says(loop: Loop) -> None:
    with (
        Instance(loop.root, buffer=1 << 20) as instance,
        RawReader(loop.root, instance.path) as reader,
    ):
        instance.filter(loop.event.name, "round < 3 || round == 10")
        instance.enable(loop.event.name)
        instance.start()
        loop.run()
        instance.disable()
        assert len(reader.read(everything=True)) == 4
        with pytest.raises(TracingError, match=r"refused: .*Field not found") as caught:
            instance.filter(loop.event.name, "nothing == 3")
        assert "\n" not in str(caught.value)


def test_the_kernel_tells_what_it_refuses(tracefs: Path) -> None:
    with pytest.raises(TracingError, match="Invalid register name, at column 25"):
        define(tracefs, "uprobe_events", "p:usdt_x/e /bin/sh:0x10 %nothing", "usdt_x/e")
    with pytest.raises(TracingError, match="Failed to find the given file, at column 12"):
        define(tracefs, "uprobe_events", "p:usdt_x/e /nowhere:0x10", "usdt_x/e")


def test_what_a_killed_run_left_is_found(tmp_path: Path, tracefs: Path) -> None:
    program = private(build("default", "loop"), tmp_path)
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from tracing.eventtracer.definitions import define\n"
        "from tracing.eventtracer.instance import Instance\n"
        "from tracing.eventtracer.owner import own_name\n"
        "root, name = Path(sys.argv[1]), own_name() + '/hit'\n"
        "define(root, 'uprobe_events', f'p:{name} {sys.argv[2]}:0x10', name)\n"
        "instance = Instance(root, buffer=1 << 20)\n"
        "print(own_name(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    words = [sys.executable, "-c", script, tracefs, program]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    name = done.stdout.strip()
    assert is_orphan(name), done.stderr
    left = [event for event in orphans(tracefs) if event.name.startswith(name)]
    places = [path for path in orphaned_instances(tracefs) if path.name.startswith(name)]
    assert (len(left), len(places)) == (1, 1)
    for place in places:
        remove_instance(place)
    for event in left:
        remove(tracefs, event)
    assert not [event for event in orphans(tracefs) if event.name.startswith(name)]


def test_names_tell_their_owner() -> None:
    assert is_ours(own_name())
    assert is_ours(own_name(3))
    assert not is_orphan(own_name())
    assert is_orphan("usdt_1_1")
    assert not is_orphan("syscalls")
    assert not is_orphan("usdt_x_1")


def test_an_event_that_is_gone_is_removed_all_the_same(tracefs: Path) -> None:
    remove(tracefs, Defined("uprobe_events", f"{own_name()}/nothing"))
    assert location.find() is not None
