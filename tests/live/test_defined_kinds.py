"""Events that somebody defined in other ways than by kprobes and uprobes, traced by name.

fprobe events (``f``), synthetic events, which triggers fire, and user events, which programs write.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from kernelprobes import kprobe, program, tracing_kernel

from usdt.base.errors import NotSupported

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NAME = f"usdt_test_kind_{os.getpid()}"


def _needs(tracefs: Path, file: str, feature: str) -> None:
    if not (tracefs / file).exists():
        raise NotSupported(feature, None)


def _write(path: Path, line: str) -> None:
    """Write a line; opening for appending would seek, which these files refuse."""
    number = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(number, f"{line}\n".encode())
    finally:
        os.close(number)


def _traced(source: str, *probes: str) -> list[dict[str, Any]]:
    lines = kprobe("trace", "--json", "-c", program(source), *probes).stdout.splitlines()
    return [hit for hit in map(json.loads, lines) if "probe" in hit]


# ---------------------------------------------------------------- fprobe events


@pytest.fixture
def fprobe_events(tracefs: Path) -> Iterator[None]:
    """Events GROUP/ff and GROUP/fr at the entry and the return of a function."""
    if "f[:[<group>/][<event>]]" not in (tracefs / "README").read_text():
        raise NotSupported("fprobe events (CONFIG_FPROBE_EVENTS)", None)
    kprobe("event", "define", f"f:{_NAME}/ff do_sys_openat2 dfd=$arg1:s32 name=+0($arg2):ustring")
    kprobe("event", "define", f"f:{_NAME}/fr do_sys_openat2%return fd=$retval:s32")
    yield
    kprobe("event", "remove", "--yes", f"{_NAME}/*")


@pytest.mark.usefixtures("fprobe_events")
def test_fprobe_events(tmp_path: Path) -> None:
    path = tmp_path / "made"
    hits = _traced(f"open({str(path)!r}, 'w')", f'ff(name == "{path}", dfd)', f"{_NAME}/fr(fd)")
    at = next(index for index, hit in enumerate(hits) if hit["probe"].endswith(":ff"))
    assert hits[at]["args"] == {"dfd": -100}
    assert hits[at + 1]["probe"] == f"tracepoint:{_NAME}:fr"
    assert hits[at + 1]["args"]["fd"] > 2


# ---------------------------------------------------------------- synthetic events


@pytest.fixture
def synthetic_event(tracefs: Path) -> Iterator[str]:
    """A synthetic event that fires when a program is executed, with the process ID."""
    _needs(tracefs, "synthetic_events", "synthetic events (CONFIG_SYNTH_EVENTS)")
    definitions = tracefs / "synthetic_events"
    trigger = tracefs / "events" / "sched" / "sched_process_exec" / "trigger"
    action = f"hist:keys=common_pid:who=pid:onchange($who).trace({_NAME},$who)"
    _write(definitions, f"{_NAME} pid_t who")
    _write(trigger, action)
    yield _NAME
    _write(trigger, f"!{action}")
    _write(definitions, f"!{_NAME}")


@pytest.mark.parametrize("group", ["", "synthetic/", "tracepoint:synthetic:"])
def test_a_synthetic_event(synthetic_event: str, group: str) -> None:
    with tracing_kernel("trace", "--json", f"{group}{synthetic_event}(who > 0, who)") as tool:
        done = subprocess.Popen(["/bin/true"])
        done.wait()
        tool.wait_events(1)
        hits = tool.stop()
    assert done.pid in [hit["args"]["who"] for hit in hits]
    assert {hit["probe"] for hit in hits} == {f"tracepoint:synthetic:{synthetic_event}"}


# ---------------------------------------------------------------- user events

# struct user_reg, include/uapi/linux/user_events.h: the kernel sets a bit of ``enabled`` while
# somebody traces, and ``write_index`` is what a record begins with.
_WRITER = """
import ctypes, fcntl, os, struct, time
enabled = ctypes.c_uint32()
name = ctypes.create_string_buffer(b"NAME u32 number; u64 square")
file = os.open("FILE", os.O_RDWR)
given = bytearray(struct.pack("=IBBHQQI", 28, 0, 4, 0, ctypes.addressof(enabled),
                              ctypes.addressof(name), 0))
fcntl.ioctl(file, 0xC0082A00, given)
(index,) = struct.unpack_from("=I", given, 24)
assert enabled.value == 1, "nobody traces"
for number in range(5):
    os.write(file, struct.pack("=IIQ", index, number, number * number))
"""


@pytest.fixture
def user_event(tracefs: Path) -> Iterator[str]:
    """A user event that stays, and that no program writes yet."""
    _needs(tracefs, "user_events_data", "user events (CONFIG_USER_EVENTS)")
    _write(tracefs / "dynamic_events", f"u:{_NAME} u32 number; u64 square")
    yield _NAME
    _write(tracefs / "dynamic_events", f"-:{_NAME}")


@pytest.mark.parametrize("group", ["", "user_events/", "tracepoint:user_events:"])
def test_a_user_event(tracefs: Path, user_event: str, group: str) -> None:
    source = _WRITER.replace("NAME", user_event).replace("FILE", str(tracefs / "user_events_data"))
    hits = _traced(source, f"{group}{user_event}(number != 2, number, square)")
    assert [hit["args"] for hit in hits] == [
        {"number": number, "square": number * number} for number in (0, 1, 3, 4)
    ]
    assert {hit["probe"] for hit in hits} == {f"tracepoint:user_events:{user_event}"}
