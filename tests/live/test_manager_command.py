"""What the manager and ``usdt attach`` are given: every form, and every mistake."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fixtures import Fixture, start
from managing import Setup, few_sites, managing, pins_folder
from patience import patient
from recorder import recorder, shared_semaphores
from tracing_tools import USDT, until

from usdt.base.errors import ProbeNotFound, TargetError, TracingError
from usdt.bpf._uapi import AttachType, ProgType
from usdt.bpf.asm.assembler import Assembler
from usdt.bpf.asm.insn import R0
from usdt.bpf.link import UprobeMethod
from usdt.bpf.objects import pin
from usdt.bpf.program import Program, ProgramSpec
from usdt.libbpf.manager import Manager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from usdt.libbpf.handles import MapLike

pytestmark = pytest.mark.usefixtures("ringbuf", "cookies")


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    """A few sites."""
    return few_sites(tmp_path)


@pytest.fixture
def pins() -> Iterator[Path]:
    """A directory in bpffs, removed with all that is in it."""
    with pins_folder() as directory:
        yield directory


class _Table:
    def __init__(self, fd: int) -> None:
        self.map_fd = fd
        self.fd = fd


@pytest.mark.parametrize("form", ["map", "descriptor", "table", "pin"])
def test_maps_and_programs_are_given_as(form: str, sites: Path, pins: Path) -> None:
    with managing(sites) as setup:
        given: dict[str, MapLike] = {}
        for name, item in (("specs", setup.specs), ("ips", setup.ips), ("prog", setup.program)):
            pin(item.fd, pins / name)
            number = item.fd.fileno()
            given[name] = {
                "map": item,
                "descriptor": number,
                "table": _Table(number),
                "pin": str(pins / name),
            }[form]  # type: ignore[assignment]
        with Manager(given["specs"], given["ips"]) as manager:
            attachment = manager.attach(given["prog"], sites, "sites", "one")
            assert attachment.via is setup.via
        assert not setup.specs.fd.closed


def wrong_map(setup: Setup) -> None:
    Manager(setup.ips)


def wrong_addresses(setup: Setup) -> None:
    Manager(setup.specs, setup.specs)


def program_for_map(setup: Setup) -> None:
    Manager(setup.program.fd.fileno())


def map_for_program(setup: Setup) -> None:
    setup.manager.attach(setup.specs.fd.fileno(), setup.path, "sites", "one")


def closed_descriptor(setup: Setup) -> None:
    Manager(1_000_000)


def no_pin(setup: Setup) -> None:
    Manager("/sys/fs/bpf/not/there")


def no_bpffs(setup: Setup) -> None:
    Manager(setup.path)


def other_program(setup: Setup) -> None:
    asm = Assembler()
    asm.mov(R0, 0)
    asm.exit()
    with ProgramSpec(asm.assemble(), ProgType.SOCKET_FILTER).load({}) as program:
        setup.manager.attach(program, setup.path, "sites", "one")


def no_probe(setup: Setup) -> None:
    setup.manager.attach(setup.program, setup.path, "sites", "onne")


def no_file(setup: Setup) -> None:
    setup.manager.attach(setup.program, "/no/such/file", "sites", "one")


def perf_of_multi(setup: Setup) -> None:
    with Manager(setup.specs, via=UprobeMethod.PERF_LINK) as manager:
        manager.attach(setup.program, setup.path, "sites", "one")


def no_addresses(setup: Setup) -> None:
    with (
        _perf_program(setup) as program,
        Manager(setup.specs, via=UprobeMethod.PERF_EVENT) as manager,
    ):
        manager.attach(program, setup.path, "sites", "one")


def multi_of_perf(setup: Setup) -> None:
    with _perf_program(setup) as program:
        setup.manager.attach(program, setup.path, "sites", "one")


def _perf_program(setup: Setup) -> Program:
    maps = {"events": setup.tracer.ring.map, "count": setup.tracer._count}
    return ProgramSpec(recorder(), attach_type=AttachType.NONE).load(maps)


@pytest.mark.parametrize(
    ("act", "kind", "reason"),
    [
        (wrong_map, TracingError, "no spec map of libbpf's: HASH with keys of 8"),
        (wrong_addresses, TracingError, "does not map addresses to spec IDs"),
        (program_for_map, TargetError, "is bpf-prog, a BPF map expected"),
        (map_for_program, TargetError, "is bpf-map, a BPF program expected"),
        (closed_descriptor, TargetError, "not an open descriptor"),
        (no_pin, TargetError, "nothing is pinned there"),
        (no_bpffs, TargetError, "must be a pin in bpffs"),
        (other_program, TargetError, r"a program of type SOCKET_FILTER \(1\)"),
        (no_probe, ProbeNotFound, "nearest is sites:one"),
        (no_file, TargetError, "no such file"),
        (perf_of_multi, TracingError, "loaded for uprobe_multi"),
        (no_addresses, TracingError, "no map __bpf_usdt_ip_to_spec_id was given"),
        (multi_of_perf, TracingError, "was not loaded for it"),
    ],
)
def test_mistakes_are_named(
    act: Callable[[Setup], None], kind: type[TracingError], reason: str, sites: Path
) -> None:
    via = UprobeMethod.UPROBE_MULTI if act in (perf_of_multi, multi_of_perf) else None
    with managing(sites, via) as setup:
        with pytest.raises(kind, match=reason):
            act(setup)
        setup.manager.attach(setup.program, sites, "sites", "one")


@contextlib.contextmanager
def command(pins: Path, *words: object) -> Iterator[subprocess.Popen[str]]:
    """``usdt attach`` with the pins of this folder."""
    options = [f"--{name}={pins / name}" for name in ("prog", "specs", "ips")]
    with subprocess.Popen(
        [USDT, "attach", *options, *map(str, words)], stderr=subprocess.PIPE, text=True
    ) as tool:
        try:
            yield tool
        finally:
            tool.kill()


@pytest.fixture
def pinned(tmp_path: Path, pins: Path) -> Iterator[tuple[Setup, Fixture]]:
    """A pinned program, and a process with semaphores."""
    path = shared_semaphores(tmp_path)
    with managing(path) as setup, start(path, "-w") as running:
        for name, item in (("specs", setup.specs), ("ips", setup.ips), ("prog", setup.program)):
            pin(item.fd, pins / name)
        running.wait_ready()
        yield setup, running


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_command_leaves_nothing_behind(
    pinned: tuple[Setup, Fixture], pins: Path, end: signal.Signals
) -> None:
    setup, running = pinned
    before = running.state()
    words = (setup.path, "sema_shared:guarded", "--cookie", "0xcafe", "-p", running.pid)
    with command(pins, *words) as tool:
        assert tool.stderr is not None
        line = tool.stderr.readline()
        assert line == f"attached 3 sites with 3 specs by {setup.via}; end with ^C\n"
        running.fire()
        assert sorted(hit.cookie for hit in setup.tracer.hits()) == [0, 1, 2]
        assert setup.spec(0)[1] == 0xCAFE
        tool.send_signal(end)
        assert tool.wait(patient(100)) == (-end if end == signal.SIGKILL else 0)
        assert tool.stderr.read() == ""
    until(lambda: running.state() == before, "semaphores as before")


def test_the_command_ends_with_its_process(pinned: tuple[Setup, Fixture], pins: Path) -> None:
    setup, running = pinned
    words = "--via", str(setup.via), "-p", running.pid
    with command(pins, "sema_shared:guarded", *words) as tool:
        assert tool.stderr is not None
        assert tool.stderr.readline().startswith("attached 3 sites")
        running.kill()
        assert tool.wait(patient(100)) == 0


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["prog", "nothing"], 2, "nothing\n^\nError: expected PROVIDER:NAME, at column 1\n"),
        (["a:b"], 2, "Error: expected TARGET PROVIDER:NAME, or -p PID PROVIDER:NAME\n"),
        (["/x", "a:b", "--cookie", "-1"], 2, "does not fit in 64 bits.\n"),
        (["/x", "a:b", "--cookie", "x"], 2, "is not a number; write 7 or 0xcafe.\n"),
        (["/x", "a:b"], 1, "Error: /nowhere/specs: nothing is pinned there; a BPF map expected\n"),
    ],
)
def test_the_commands_mistakes(words: list[str], code: int, line: str) -> None:
    with command(Path("/nowhere"), *words) as tool:
        assert tool.stderr is not None
        assert tool.stderr.read().endswith(line)
        assert tool.wait(patient(100)) == code
