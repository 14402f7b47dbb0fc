"""The same compiled program, attached by libbpf and by us: equal specs, equal events, equal errors.

Both are attached to one running process at the same time, so that even pointers are equal. The
program and what drives libbpf are in tests/peers/libbpf/ and are compiled here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pytest
from fixtures import Fixture, build, start
from manysites import build_sites, constants

from usdt.base.errors import SyscallError, TracingError
from usdt.bpf.link import UprobeMethod
from usdt.bpf.maps import Map
from usdt.libbpf.manager import Manager
from usdt.probes.probe import read_probes

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.root

HERE = Path(__file__).parent / "libbpf"
COOKIE = 0xCAFEDEADBEEFFEED
ENOENT, EINVAL = -errno.ENOENT, -errno.EINVAL
_EVENT = struct.Struct("=Qii13i13ii4x13q")
_PACKAGES = {"clang": "clang", "gcc": "gcc", "bpftool": "bpftool"}


def tool(name: str) -> str:
    """Path of a program; Debian's bpftool is not on everybody's PATH."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        pytest.skip(f"needs the program {name}: apt-get install {_PACKAGES[name]}")
    return path


class Event(NamedTuple):
    """What the program wrote down at one hit, of 13 arguments each."""

    cookie: int
    pid: int
    count: int
    results: tuple[int, ...]
    sizes: tuple[int, ...]
    values: tuple[int, ...]
    ip: int


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with objects of the program, and with libbpf's side."""
    if not Path("/usr/include/bpf/usdt.bpf.h").exists():
        pytest.skip("needs libbpf's headers: apt-get install libbpf-dev")
    if os.uname().machine != "x86_64":
        pytest.skip("needs x86-64: registers are named")
    folder = tmp_path_factory.mktemp("libbpf")
    clang = [tool("clang"), "-target", "bpf", "-O2", "-g", "-Wall", "-Werror"]
    clang += ["-D__TARGET_ARCH_x86", "-I/usr/include/x86_64-linux-gnu", f"-I{HERE}"]
    for name, more in (
        ("default", []),
        ("small", ["-DBPF_USDT_MAX_SPEC_CNT=32"]),
        ("large", ["-DBPF_USDT_MAX_SPEC_CNT=512"]),
        ("addresses", ["-DOWN_USDT", "-DBY_ADDRESS"]),
        ("newer", ["-DOWN_USDT"]),
    ):
        words = [*clang, *more, "-c", HERE / "events.bpf.c", "-o", folder / f"{name}.o"]
        subprocess.run(words, check=True)
    words = [tool("gcc"), "-O1", "-Wall", HERE / "attacher.c", "-o", folder / "attacher", "-lbpf"]
    subprocess.run(words, check=True)
    return folder


@pytest.fixture
def pins() -> Iterator[Path]:
    """A directory in bpffs, removed with all that is in it."""
    directory = Path(f"/sys/fs/bpf/usdt-peer-{os.getpid()}")
    try:
        directory.mkdir()
    except OSError as err:
        pytest.skip(f"needs bpffs at /sys/fs/bpf: {err.strerror}")
    yield directory
    shutil.rmtree(directory)


class Side:
    """A loaded and pinned program, by its pins."""

    def __init__(self, pins: Path) -> None:
        self.pins = pins
        self._stack = contextlib.ExitStack()
        self._maps = {
            name: self._stack.enter_context(Map.from_pin(pins / name))
            for name in ("hits", "events", "__bpf_usdt_specs")
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def specs(self) -> list[bytes]:
        """Every entry of the spec map."""
        return [value for _, value in sorted(self._maps["__bpf_usdt_specs"].items())]

    def events(self, pid: int) -> list[Event]:
        """What happened in a process since last asked."""
        number = int.from_bytes(self._maps["hits"].get(bytes(4)) or b"", "little")
        self._maps["hits"].set(bytes(4), bytes(8))
        found = []
        for index in range(number):
            data = self._maps["events"].get(struct.pack("=I", index))
            assert data is not None
            fields: Any = _EVENT.unpack(data)
            found.append(Event(*fields[:3], fields[3:16], fields[16:29], fields[30:], fields[29]))
        return [event for event in found if event.pid == pid]


class Libbpf(Side):
    """A program that libbpf has loaded and attaches."""

    def __init__(self, made: Path, name: str, pins: Path, *words: str) -> None:
        pins.mkdir()
        self._process = subprocess.Popen(
            [made / "attacher", made / f"{name}.o", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        assert self.say(f"pin {pins}") == "ok"
        super().__init__(pins)

    def say(self, line: str) -> str:
        """Give an order, return the answer."""
        self.order(line)
        return self.answer()

    def order(self, line: str) -> None:
        """Give an order."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """Wait for the answer to an order."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def attach(self, path: Path, probe: str, *, pid: int = -1, cookie: int = COOKIE) -> str:
        """``ok NUMBER`` or ``error ERRNO``."""
        provider, name = probe.split(":")
        return self.say(f"attach {pid} {path} {provider} {name} {cookie}")

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._process.kill()
        self._process.communicate()


class Ours(Side):
    """A program that bpftool or libbpf has loaded and we attach."""

    def __init__(self, pins: Path, via: UprobeMethod | None = None) -> None:
        super().__init__(pins)
        self.manager = Manager(
            pins / "__bpf_usdt_specs", pins / "__bpf_usdt_ip_to_spec_id", via=via
        )
        self._stack.enter_context(self.manager)

    def attach(self, path: Path, probe: str, **options: Any) -> Any:
        """An attachment of the pinned program."""
        provider, name = probe.split(":")
        options = {"cookie": COOKIE, "strict": True} | options
        return self.manager.attach(self.pins / "on_hit", path, provider, name, **options)


@pytest.fixture
def load(made: Path, pins: Path) -> Any:
    """Load an object with bpftool and pin it: gives the folder of pins."""

    def loaded(name: str) -> Path:
        folder = pins / f"bpftool-{name}"
        words = [tool("bpftool"), "prog", "loadall", made / f"{name}.o", folder]
        subprocess.run([*words, "pinmaps", folder], check=True, capture_output=True)
        return folder

    return loaded


@pytest.fixture
def both(made: Path, pins: Path, load: Any) -> Iterator[tuple[Libbpf, Ours]]:
    """The same object twice: libbpf's, and ours."""
    with Libbpf(made, "default", pins / "theirs") as theirs, Ours(load("default")) as ours:
        yield theirs, ours


@pytest.mark.parametrize(
    ("variant", "program", "names"),
    [
        ("default", "args", ["count0", "count3", "count12"]),
        ("O0", "args", ["count12"]),
        ("clang", "args", ["variadic12"]),
        ("default", "ints", ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"]),
        ("nopie", "ints", ["plain_char", "ushort", "dirty"]),
        ("default", "consts", ["small", "extremes", "narrow", "enums"]),
        ("default", "strings", ["literal", "array"]),
        ("stripped", "sema_shared", ["guarded", "value"]),
        ("default", "sema_each", ["guarded"]),
    ],
)
def test_specs_and_events_are_equal(
    both: tuple[Libbpf, Ours], variant: str, program: str, names: list[str], tmp_path: Path
) -> None:
    theirs, ours = both
    path = Path(shutil.copy(build(variant, program), tmp_path))
    with start(path, "-w") as running:
        running.wait_ready()
        for number, name in enumerate(names):
            probe = f"{program}:{name}"
            assert theirs.attach(path, probe, pid=running.pid) == f"ok {number}"
            ours.attach(path, probe, pid=running.pid)
        running.fire()
        expected = theirs.events(running.pid)
        assert theirs.specs() == ours.specs()
        assert expected
        assert ours.events(running.pid) == expected
        assert {event.cookie for event in expected} == {COOKIE}
        check_integers(running, program, names, expected)


def check_integers(running: Fixture, program: str, names: list[str], events: list[Event]) -> None:
    """Compare with what the program says it fired, as far as that is integers."""
    wanted = [f"{program}:{name}" for name in names]
    fired = [hit["args"] for hit in running.hits if hit["probe"] in wanted]
    assert len(fired) == len(events)
    for args, event in zip(fired, events, strict=True):
        assert event.count == len(args)
        absent = (ENOENT,) * (13 - len(args))
        assert event.results == (0,) * len(args) + absent
        assert event.sizes[len(args) :] == absent
        for value, arg in zip(event.values, args, strict=False):
            if isinstance(arg, int):
                assert value & (1 << 64) - 1 == arg & (1 << 64) - 1


@pytest.mark.parametrize("name", ["default", "newer"])
def test_sizes_of_arguments(load: Any, name: str) -> None:
    path = build("default", "ints")
    with Ours(load(name)) as ours, start(path, "-w") as running:
        running.wait_ready()
        for bits in (8, 16, 32, 64):
            with (
                ours.attach(path, f"ints:i{bits}", pid=running.pid),
                ours.attach(path, f"ints:u{bits}", pid=running.pid),
            ):
                running.fire()
            found = [event.sizes for event in ours.events(running.pid)]
            assert found == [(bits // 8,) * 6 + (ENOENT,) * 7] * 2


def test_reattaching_takes_ids_in_the_same_order(both: tuple[Libbpf, Ours], tmp_path: Path) -> None:
    theirs, ours = both
    path = build_sites(tmp_path, {"three": constants(3), "two": constants(2), "five": constants(5)})
    kept = {}
    steps = [("three", 1), ("two", 2), ("-three", 0), ("five", 3), ("-two", 0), ("two", COOKIE)]
    for name, cookie in steps:
        if name.startswith("-"):
            number, attachment = kept.pop(name[1:])
            assert theirs.say(f"detach {number}") == "ok"
            attachment.close()
            continue
        answer = theirs.attach(path, f"sites:{name}", cookie=cookie)
        kept[name] = answer.split()[1], ours.attach(path, f"sites:{name}", cookie=cookie)
        assert theirs.specs() == ours.specs()
    assert kept["two"][1].spec_ids == (1, 0) or len(set(ours.specs())) > 1


@pytest.mark.parametrize(
    ("program", "probe", "number"),
    [
        ("args", "args:count13", errno.ENOENT),
        ("args", "other:count3", errno.ENOENT),
        ("regs", "regs:many", errno.E2BIG),
        ("structs", "structs:s16", errno.EINVAL),
    ],
)
def test_what_libbpf_refuses_we_refuse_when_strict(
    both: tuple[Libbpf, Ours], program: str, probe: str, number: int
) -> None:
    theirs, ours = both
    path = build("default", program)
    assert theirs.attach(path, probe) == f"error {number}"
    with pytest.raises(TracingError) as caught:
        ours.attach(path, probe)
    if isinstance(caught.value, SyscallError):
        assert caught.value.errno == number
    else:
        assert number == errno.ENOENT


def test_more_specs_than_the_map_has(made: Path, pins: Path, load: Any, tmp_path: Path) -> None:
    # libbpf finds out at the 33rd site, and detaches the 32 before it one after the other: with
    # the 256 of the default map that takes half a minute, while we are done.
    path = build_sites(tmp_path, {"many": constants(33), "one": ["8@%rsp"]})
    with (
        Libbpf(made, "small", pins / "theirs") as theirs,
        Ours(load("small")) as ours,
        start(path) as running,
    ):
        running.wait_ready()
        theirs.order(f"attach -1 {path} sites many {COOKIE}")
        with pytest.raises(SyscallError) as caught:
            ours.attach(path, "sites:many")
        assert caught.value.errno == errno.E2BIG
        assert not any(map(any, ours.specs())), "nothing was written"
        assert theirs.answer() == f"error {errno.E2BIG}"
        running.fire()
        assert theirs.events(running.pid) == ours.events(running.pid) == []
        assert ours.attach(path, "sites:one").spec_ids == (0,)
        assert theirs.attach(path, "sites:one", pid=running.pid).startswith("ok")
        running.fire()
        assert len(ours.events(running.pid)) == len(theirs.events(running.pid)) == 1


def test_the_default_map_takes_as_many_specs_as_libbpf_says(both: tuple[Libbpf, Ours]) -> None:
    theirs, ours = both
    assert len(theirs.specs()) == len(ours.specs()) == 256


def loaded_for_multi(made: Path, pins: Path, name: str) -> Libbpf:
    """A program that libbpf has loaded for uprobe_multi, which only newer ones do by themselves."""
    return Libbpf(made, name, pins / "multi", "multi")


@pytest.mark.parametrize(
    ("name", "args", "specs"),
    [
        pytest.param("default", constants(100), 100, id="100 sites with different specs"),
        pytest.param("large", constants(300), 300, id="300 sites with different specs"),
        pytest.param("default", ["-4@$5 8@%rsp"] * 400, 1, id="400 sites of one spec"),
    ],
)
def test_many_sites(
    made: Path, pins: Path, tmp_path: Path, *, name: str, args: list[str], specs: int
) -> None:
    path = build_sites(tmp_path, {"many": args})
    with loaded_for_multi(made, pins, name), Ours(pins / "multi") as ours, start(path) as running:
        running.wait_ready()
        attachment = ours.attach(path, "sites:many", pid=running.pid)
        assert attachment.via is UprobeMethod.UPROBE_MULTI
        assert (attachment.sites, len(attachment.spec_ids)) == (len(args), specs)
        running.fire()
        events = ours.events(running.pid)
        assert [event.values[0] for event in events] == [
            int(text.partition("$")[2].split()[0]) for text in args
        ]
        assert {(event.count, event.results[:3]) for event in events} == {(2, (0, 0, ENOENT))}


def test_an_index_register_with_the_newer_layout(load: Any) -> None:
    path = build("default", "sib")
    names = [p.name for p in read_probes(path).probes if p.name not in {"named", "negative"}][:6]
    with Ours(load("newer")) as ours, start(path, "-w") as running:
        running.wait_ready()
        for name in names:
            ours.attach(path, f"sib:{name}", pid=running.pid)
        running.fire()
        check_integers(running, "sib", names, ours.events(running.pid))


def test_what_no_spec_can_express_answers_einval(load: Any, tmp_path: Path) -> None:
    path = build_sites(tmp_path, {"mixed": ["4@$1 8@%xmm0 -8@$-3"]})
    for name in ("default", "newer"):
        with Ours(load(name)) as ours, start(path) as running:
            running.wait_ready()
            with ours.attach(path, "sites:mixed", strict=False) as attachment:
                assert len(attachment.notices) == 1
                running.fire()
                (event,) = ours.events(running.pid)
        assert event.results[:4] == (0, EINVAL, 0, ENOENT)
        assert event.values[:3] == (1, 0, -3)


def test_symbols_are_read_where_libbpf_gives_up(both: tuple[Libbpf, Ours]) -> None:
    theirs, ours = both
    path = build("default", "globals")
    with start(path, "-w") as running:
        running.wait_ready()
        assert theirs.attach(path, "globals:members", pid=running.pid) == f"error {errno.EINVAL}"
        ours.attach(path, "globals:members", pid=running.pid)
        running.fire()
        check_integers(running, "globals", ["members"], ours.events(running.pid))


@pytest.mark.parametrize("variant", ["default", "nopie"])
def test_a_program_that_knows_addresses_only(load: Any, variant: str) -> None:
    path = build(variant, "args")
    with (
        Ours(load("addresses"), UprobeMethod.PERF_EVENT) as ours,
        start(path, "-w") as running,
    ):
        running.wait_ready()
        with ours.attach(path, "args:count3", pid=running.pid):
            ours.attach(path, "args:count12", pid=running.pid)
            running.fire()
        check_integers(running, "args", ["count3", "count12"], ours.events(running.pid))
