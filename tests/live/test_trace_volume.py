"""Many sites and many hits: everything attached, everything delivered or counted."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING

import pytest
from fixtures import build, start
from paced import BATCHES, ROUNDS, fire_and_wait, lines_of, loop, numbers
from patience import patient
from streams import read_events
from tracing_tools import tracing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.usefixtures("uprobe_multi")  # else it is 20,000 descriptors and minutes to detach
def test_ten_thousand_sites_attach_at_once(tmp_path: Path) -> None:
    path, output = build("default", "many10k"), tmp_path / "events"
    pattern, numbers = "many10k:*", list(range(10_000))
    if patient(1) > 1:  # a tenth where a CPU is emulated
        pattern, numbers = "many10k:p?", [number for number in numbers if number % 100 < 10]
    with tracing("-c", f"{path} -n 1", "-o", output, pattern) as tool:
        assert tool.sites == len(numbers)
        assert tool.wait_all() == 0
        assert tool.closing == (len(numbers), 0)
    printed = {line["args"][0]: line for line in map(json.loads, tool.lines)}  # by the program
    fired = [(printed[number]["probe"], *printed[number]["args"]) for number in numbers]
    events = read_events(output.read_text())
    assert [(event["probe"], *event["args"].values()) for event in events] == fired


def test_nothing_is_lost_of_what_is_read_in_time(tmp_path: Path) -> None:
    output = tmp_path / "events"
    with (
        loop() as program,
        tracing("-p", program.wait_ready().pid, "-o", output, "loop:hit(arg0,arg1)") as tool,
    ):
        fire_and_wait(program, lines_of(output))
        program.finish()
        tool.finish()
        assert tool.closing == (ROUNDS * BATCHES, 0)
    pairs = re.findall(rb'"arg0": (\d+), "arg1": (-?\d+)}}\n', output.read_bytes())
    assert pairs == [(b"%d" % i, b"%d" % -i) for i in numbers()]


def test_a_million_hits_are_delivered_or_counted(tmp_path: Path) -> None:
    # At full speed: whether any is lost is up to the machine, that each is counted is not.
    output = tmp_path / "events"
    with (
        start(build("default", "loop"), "-w", "-q", "-n", 1_000_000) as fixture,
        tracing("-p", fixture.wait_ready().pid, "-o", output, "loop:hit(arg0,arg1)") as tool,
    ):
        fixture.fire(timeout=patient(120))
        fixture.finish()
        tool.finish(timeout=patient(120))
        delivered, lost = tool.closing
    assert delivered + lost == 1_000_000
    data = output.read_bytes()
    results = data.count(b"\n") - data.count(b'{"usdt": ') - data.count(b'\n{"clock": ')
    assert results == delivered + (1 if lost else 0)  # a line says how many were lost
    rounds = [int(text) for text in re.findall(rb'"arg0": (\d+)', data)]
    assert len(rounds) == delivered
    assert rounds == sorted(set(rounds))


def test_what_does_not_fit_the_buffer_is_counted() -> None:
    with (
        start(build("default", "loop"), "-w", "-q", "-n", 200_000) as fixture,
        tracing("-p", fixture.wait_ready().pid, "--buffer", "4K", "loop:hit") as tool,
    ):
        os.kill(tool.pid, signal.SIGSTOP)  # so that nothing is read meanwhile
        fixture.fire(timeout=patient(100))
        os.kill(tool.pid, signal.SIGCONT)
        fixture.finish()
        tool.finish(timeout=patient(100))
        delivered, lost = tool.closing
    assert lost > 0
    assert delivered + lost == 200_000
    told = [record for record in tool.records if "lost" in record]
    assert told == [{"lost": lost, "probe": "loop:hit"}]
    assert len(tool.events) == delivered
    assert [line for line in tool.errors if f"loop:hit: {lost} events lost" in line]
