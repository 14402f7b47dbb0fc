"""usdt.attach_program: programs of the caller on probes of every kind."""

from __future__ import annotations

import contextlib
import os
import struct
from typing import TYPE_CHECKING, Any

import pytest
from fixtures import build, start
from managing import pins_folder

import usdt
from usdt.bpf import (
    Assembler,
    Helper,
    Jump,
    Map,
    MapSpec,
    MapType,
    Program,
    ProgramSpec,
    ProgType,
    features,
)
from usdt.bpf._uapi import AttachType
from usdt.bpf.asm.insn import R0, R1, R2, R3, R4, R6, R10
from usdt.bpf.objects import pin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fixtures import Fixture

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies")

_ROUNDS = 3


def _counter(kind: ProgType = ProgType.KPROBE, **more: Any) -> ProgramSpec:
    # Counts hits of this process's children by cookie.
    asm = Assembler()
    asm.mov(R6, 0)
    if kind is not ProgType.RAW_TRACEPOINT or features.have_raw_cookies():
        asm.call(Helper.GET_ATTACH_COOKIE)
        asm.mov(R6, R0)
    asm.store(R10, -8, R6)
    asm.store(R10, -16, 1)
    asm.load_map(R1, "hits")
    asm.mov(R2, R10)
    asm.add(R2, -8)
    asm.call(Helper.MAP_LOOKUP_ELEM)
    asm.jump(Jump.EQ, R0, 0, "first")
    asm.mov(R1, 1)
    asm.atomic_add(R0, 0, R1)
    asm.mov(R0, 1)
    asm.exit()
    asm.label("first")
    asm.load_map(R1, "hits")
    asm.mov(R2, R10)
    asm.add(R2, -8)
    asm.mov(R3, R10)
    asm.add(R3, -16)
    asm.mov(R4, 0)
    asm.call(Helper.MAP_UPDATE_ELEM)
    asm.mov(R0, 1)
    asm.exit()
    return ProgramSpec(asm.assemble(), kind, **more)


@pytest.fixture
def hits() -> Iterator[Map]:
    with MapSpec(MapType.HASH, 8, 8, 64).create() as made:
        yield made


def _counts(table: Map) -> dict[int, int]:
    unpack = struct.Struct("=Q").unpack
    return {unpack(key)[0]: unpack(value)[0] for key, value in table.items()}


@pytest.fixture
def loop() -> Iterator[Fixture]:
    with start(build("default", "loop"), "-w", "-n", _ROUNDS) as program:
        yield program.wait_ready()


def test_a_spec_is_loaded_and_attached_to_a_usdt_probe(loop: Fixture, hits: Map) -> None:
    program = build("default", "loop")
    with usdt.attach_program(
        _counter(), f"{program}:loop:hit", pid=loop.pid, cookie=7, maps={"hits": hits}
    ) as link:
        loop.fire()
        assert (link.sites, link.notices, link.closed) == (2, (), False)
    assert _counts(hits) == {7: _ROUNDS}
    assert link.closed
    link.close()
    loop.fire()
    assert _counts(hits) == {7: _ROUNDS}


def test_without_a_file_the_files_of_the_process_are_meant(loop: Fixture, hits: Map) -> None:
    with usdt.attach_program(_counter(), "loop:hit", pid=loop.pid, maps={"hits": hits}):
        loop.fire()
    assert _counts(hits) == {0: _ROUNDS}


def test_semaphores_are_raised_while_it_is_attached(hits: Map) -> None:
    program = build("default", "sema_shared")
    with start(program, "-w", "-n", 1) as running:
        running.wait_ready()
        with usdt.attach_program(
            _counter(), f"{program}:sema_shared:*", pid=running.pid, maps={"hits": hits}
        ):
            assert any(sum(counts) for counts in running.state().values())
        assert not any(sum(counts) for counts in running.state().values())


def test_functions_at_entry_and_return(loop: Fixture, hits: Map) -> None:
    program = build("default", "loop")
    for number, probe in enumerate((f"uprobe:{program}:fire", f"uretprobe:{program}:fire"), 1):
        with usdt.attach_program(
            _counter(), probe, pid=loop.pid, cookie=number, maps={"hits": hits}
        ) as link:
            loop.fire()
            assert link.sites == 1
    assert _counts(hits) == {1: _ROUNDS, 2: _ROUNDS}


def test_a_library_in_every_process(hits: Map) -> None:
    with usdt.attach_program(
        _counter(), "uprobe:libc:setlocale(return)", cookie=1 << 63, maps={"hits": hits}
    ):
        os.spawnlp(os.P_WAIT, "env", "env", "true")
    assert _counts(hits).keys() == {1 << 63}


@pytest.mark.parametrize("how", ["spec", "multi", "perf-link", "descriptor", "pin"])
def test_every_way_to_give_a_program(how: str, loop: Fixture, hits: Map) -> None:
    probe = f"{build('default', 'loop')}:loop:hit"
    with contextlib.ExitStack() as stack:
        given: Any
        spec = _counter()
        if how == "multi":
            if not features.have_uprobe_multi():
                pytest.skip("needs uprobe_multi (Linux 6.6)")
            spec = _counter(attach_type=AttachType.TRACE_UPROBE_MULTI)
        if how == "spec":
            given, maps = spec, {"hits": hits}
        else:
            given, maps = stack.enter_context(spec.load({"hits": hits})), None
        if how == "descriptor":
            given = given.fd.fileno()
        elif how == "pin":
            place = stack.enter_context(pins_folder()) / "program"
            pin(given.fd, place)
            given = place
        with usdt.attach_program(given, probe, pid=loop.pid, cookie=5, maps=maps) as link:
            loop.fire()
        if how in ("multi", "perf-link"):
            assert link.via == {"multi": "uprobe_multi"}.get(how, how)
    assert _counts(hits) == {5: _ROUNDS}


def test_tracepoints_and_raw_tracepoints(hits: Map) -> None:
    for number, (kind, probe) in enumerate(
        (
            (ProgType.TRACEPOINT, "tracepoint:sched:sched_process_exec"),
            (ProgType.RAW_TRACEPOINT, "rawtp:sched_process_exec"),
        ),
        1,
    ):
        cookie = number if features.have_raw_cookies() or number == 1 else 0
        with usdt.attach_program(_counter(kind), probe, cookie=cookie, maps={"hits": hits}) as link:
            os.spawnlp(os.P_WAIT, "true", "true")
            assert link.sites == 1
        assert _counts(hits)[cookie] >= 1


@pytest.mark.usefixtures("kprobes")
def test_functions_of_the_kernel(hits: Map) -> None:
    for number, probe in enumerate(("kprobe:do_exit", "kretprobe:kernel_wait4"), 1):
        with usdt.attach_program(_counter(), probe, cookie=number, maps={"hits": hits}):
            os.spawnlp(os.P_WAIT, "true", "true")
    assert _counts(hits).keys() == {1, 2}
    with pytest.raises(usdt.ProbeNotFound, match="no function no_such_function"):
        usdt.attach_program(_counter(), "kprobe:no_such_function", maps={"hits": hits})


_LOOP = "{loop}"


@pytest.mark.parametrize(
    ("probe", "options", "error", "says"),
    [
        pytest.param("syscall:openat", {}, usdt.LanguageError, "sys_enter_openat", id="a call"),
        pytest.param("fentry:do_exit", {}, usdt.LanguageError, "fentry", id="fentry"),
        pytest.param(
            f"{_LOOP}:loop:hit(arg0)", {}, usdt.LanguageError, "takes no items", id="items"
        ),
        pytest.param(
            f"{_LOOP}:loop:hit(return)", {}, usdt.LanguageError, "no return", id="no return"
        ),
        pytest.param("loop:hit", {}, usdt.TargetError, "which file", id="no file"),
        pytest.param(
            f"{_LOOP}:loop:hot",
            {},
            usdt.ProbeNotFound,
            "nearest is loop:hit",
            id="misspelt",
        ),
        pytest.param(
            f"uprobe:{_LOOP}:fure", {}, usdt.ProbeNotFound, "fure", id="a misspelt function"
        ),
        pytest.param(
            "tracepoint:sched:sched_wake", {}, usdt.ProbeNotFound, "kprobe list", id="no tracepoint"
        ),
        pytest.param("rawtp:sched_wake", {}, usdt.TracingError, "tracepoint", id="no such raw one"),
        pytest.param(
            "rawtp:sched_switch", {"pid": 1}, usdt.TargetError, "pid", id="a process and the kernel"
        ),
        pytest.param(
            "tracepoint:sched:*", {}, usdt.LanguageError, "one", id="a pattern of the kernel"
        ),
        pytest.param(
            f"{_LOOP}:loop:hit", {"pid": 1 << 22}, usdt.TargetError, "no process", id="no process"
        ),
    ],
)
def test_what_cannot_be_done_is_said(
    probe: str, options: dict[str, Any], error: type[Exception], says: str, hits: Map
) -> None:
    kinds = {"tracepoint": ProgType.TRACEPOINT, "rawtp": ProgType.RAW_TRACEPOINT}
    spec = _counter(kinds.get(probe.partition(":")[0], ProgType.KPROBE))
    text = probe.replace(_LOOP, str(build("default", "loop")))
    with pytest.raises(error, match=says) as caught:
        usdt.attach_program(spec, text, maps={"hits": hits}, **options)
    assert len(str(caught.value).splitlines()) == 1


def test_a_program_of_another_type_is_refused(loop: Fixture, hits: Map) -> None:
    spec = _counter(ProgType.TRACEPOINT)
    with pytest.raises(usdt.TargetError, match=r"type TRACEPOINT.*programs of type KPROBE"):
        usdt.attach_program(spec, "loop:hit", pid=loop.pid, maps={"hits": hits})
    with (
        spec.load({"hits": hits}) as program,
        pytest.raises(usdt.TargetError, match=r"type TRACEPOINT.*programs of type KPROBE"),
    ):
        usdt.attach_program(program, "loop:hit", pid=loop.pid)


def test_arguments_are_checked(hits: Map) -> None:
    with pytest.raises(TypeError, match="probe 7: expected a string"):
        usdt.attach_program(_counter(), 7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pid '1': expected"):
        usdt.attach_program(_counter(), "a:b", pid="1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="program None: expected"):
        usdt.attach_program(None, "a:b")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cookie -1"):
        usdt.attach_program(_counter(), "a:b", cookie=-1)
    with pytest.raises(usdt.TracingError, match="map 'hits'"):
        usdt.attach_program(_counter(), "libc:setjmp", maps={})
    with _counter().load({"hits": hits}) as program:
        assert isinstance(program, Program)
        with pytest.raises(usdt.TracingError, match="maps"):
            usdt.attach_program(program, "libc:setjmp", maps={"hits": hits})
