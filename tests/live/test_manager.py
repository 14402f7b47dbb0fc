"""The manager of other people's programs, with a program that writes down cookies and addresses."""

from __future__ import annotations

import contextlib
import errno
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from fixtures import build, start
from house import ROOT
from managing import few_sites, managing
from manysites import SYNTAX, build_sites, constants
from patience import patient
from recorder import shared_semaphores
from skips import need_program

from usdt.base.errors import ProbeNotFound, SyscallError, TargetError
from usdt.base.machine import PROCESS_MACHINE
from usdt.bpf.link import UprobeMethod, UprobeSite
from usdt.libbpf.manager import Attachment, SpecIds
from usdt.libbpf.resolve import AttachSpec, Collection, collect
from usdt.libbpf.usdt_spec import ArgType, SpecArgument, UsdtSpecLayout
from usdt.probes.probe import read_probes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("ringbuf")

COOKIE = 0xCAFEDEADBEEFFEED
EVERY_WAY = pytest.mark.parametrize(
    "via", [way for way in UprobeMethod if way is not UprobeMethod.UPROBE_EVENTS]
)


@pytest.fixture
def sites(tmp_path: Path) -> Path:
    """A few sites."""
    return few_sites(tmp_path)


def test_ids_come_back_in_the_order_of_a_stack() -> None:
    ids = SpecIds(5)
    assert ids.take(3) == [0, 1, 2]
    assert ids.take(1) == [3]
    ids.release([0, 1, 2])
    assert ids.free == 4
    assert ids.take(4) == [2, 1, 0, 4]
    assert ids.free == 0


@EVERY_WAY
def test_every_hit_finds_its_spec(sites: Path, via: UprobeMethod) -> None:
    with managing(sites, via) as setup, start(sites) as running:
        running.wait_ready()
        with setup.manager.attach(
            setup.program, sites, "sites", "four", pid=running.pid, cookie=COOKIE
        ) as attachment:
            running.fire()
            hits = setup.tracer.hits()
            known = setup.addresses()
            assert (attachment.sites, attachment.spec_ids) == (4, (0, 1))
            assert attachment.via is via
        found = [known[hit.ip] if via is UprobeMethod.PERF_EVENT else hit.cookie for hit in hits]
        assert found == [0, 1, 0, 1]
        for number in (0, 1):
            constant = SpecArgument(ArgType.CONST, number + 1, signed=True, bitshift=32)
            assert setup.spec(number) == ((constant,), COOKIE)
        assert setup.addresses() == {}
        running.fire()
        assert setup.tracer.hits() == []


def test_attachments_have_their_own_specs_and_return_them(sites: Path) -> None:
    with managing(sites) as setup:

        def attach(name: str, cookie: int) -> Attachment:
            return setup.manager.attach(setup.program, sites, "sites", name, cookie=cookie)

        first, second = attach("two", 1), attach("one", 2)
        third = attach("one", 3)
        assert [first.spec_ids, second.spec_ids, third.spec_ids] == [(0, 1), (2,), (3,)]
        assert [setup.spec(number)[1] for number in range(4)] == [1, 1, 2, 3]
        first.close()
        first.close()
        assert first.closed
        with attach("four", 4) as fourth:
            assert fourth.spec_ids == (1, 0)
            assert setup.spec(0)[1] == setup.spec(1)[1] == 4
            assert setup.spec(2)[1] == 2
        second.close()
        assert attach("two", 5).spec_ids == (2, 0)


def test_a_full_map_refuses_before_anything_is_attached(tmp_path: Path) -> None:
    path = build_sites(
        tmp_path, {"many": constants(6), "few": constants(5), "one": [SYNTAX.pointer]}
    )
    with managing(path, entries=5) as setup, start(path) as running:
        running.wait_ready()
        for strict in (False, True):
            with pytest.raises(SyscallError, match="need 6 specs, and 5 of the map's 5") as caught:
                setup.manager.attach(setup.program, path, "sites", "many", strict=strict)
            assert caught.value.errno == errno.E2BIG
        running.fire()
        assert setup.tracer.hits() == []
        with setup.manager.attach(setup.program, path, "sites", "few") as few:
            assert few.spec_ids == (0, 1, 2, 3, 4)
            with pytest.raises(SyscallError, match="0 of the map's 5"):
                setup.manager.attach(setup.program, path, "sites", "one")


def test_ten_thousand_sites_are_one_link(tmp_path: Path) -> None:
    path = build_sites(tmp_path, {"many": constants(500) * 20})
    with (
        managing(path, UprobeMethod.UPROBE_MULTI, entries=500) as setup,
        start(path) as running,
    ):
        running.wait_ready()
        began = time.monotonic()  # half a second; by a link for each site it would be minutes
        with setup.manager.attach(setup.program, path, "sites", "many") as attachment:
            assert time.monotonic() - began < patient(100)
            assert (attachment.sites, len(attachment.spec_ids)) == (10_000, 500)
            assert len(attachment._links) == 1
            running.fire()
            hits = setup.tracer.hits()
            assert [hit.cookie for hit in hits] == list(range(500)) * 20
            began = time.monotonic()
        assert time.monotonic() - began < patient(100)


@EVERY_WAY
def test_semaphores_are_raised_and_lowered(tmp_path: Path, via: UprobeMethod) -> None:
    path = shared_semaphores(tmp_path)
    with managing(path, via) as setup, start(path, "-w") as running:
        running.wait_ready()
        before = running.state()
        with setup.manager.attach(
            setup.program, path, "sema_shared", "guarded", pid=running.pid
        ) as attachment:
            assert attachment.sites == 3
            assert running.state() != before
            running.fire()
            assert len(setup.tracer.hits()) == 3
        assert running.state() == before


@pytest.mark.skipif(PROCESS_MACHINE != "x86_64", reason="needs operands of x86-64")
def test_what_cannot_be_expressed_is_told_or_refused(tmp_path: Path) -> None:
    path = build_sites(tmp_path, {"mixed": ["4@$1 8@%xmm0 -8@$3", "4@$2 -4@(%rax,%rdi,4) 8@$4"]})
    with managing(path) as setup:
        with pytest.raises(SyscallError, match=r"arg1 \(8@%xmm0\): %xmm0 is not saved") as caught:
            setup.manager.attach(setup.program, path, "sites", "mixed", strict=True)
        assert caught.value.errno == errno.ENOENT
        with setup.manager.attach(setup.program, path, "sites", "mixed") as attachment:
            assert len(attachment.notices) == 2
            kinds = [[a.type for a in setup.spec(number)[0]] for number in attachment.spec_ids]
            assert kinds == [[ArgType.CONST, ArgType.NONE, ArgType.CONST]] * 2
    with managing(path, layout=UsdtSpecLayout.SIB) as setup:
        attachment = setup.manager.attach(setup.program, path, "sites", "mixed")
        assert setup.spec(attachment.spec_ids[1])[0][1].type is ArgType.SIB


def test_dead_sites_and_lost_semaphores_are_told() -> None:
    path = build("default", "oddnotes")
    with managing(path) as setup:
        for name in ("dead", "in_data"):
            with pytest.raises(ProbeNotFound, match=r"no site of .* can be attached"):
                setup.manager.attach(setup.program, path, "oddnotes", name)
            with pytest.raises(SyscallError, match="left out") as caught:
                setup.manager.attach(setup.program, path, "oddnotes", name, strict=True)
            assert caught.value.errno == errno.ESRCH
        with setup.manager.attach(
            setup.program, path, "oddnotes", "semaphore_in_code"
        ) as attachment:
            assert "cannot be raised" in attachment.notices[0]


def test_a_note_that_is_there_twice_is_one_hit() -> None:
    path = build("default", "oddnotes")
    with managing(path) as setup, start(path, "-w") as running:
        running.wait_ready()
        with setup.manager.attach(setup.program, path, "oddnotes", "duplicate", pid=running.pid):
            running.fire()
            assert len(setup.tracer.hits()) == 1


def test_addresses_collide_across_attachments(sites: Path) -> None:
    with managing(sites, UprobeMethod.PERF_EVENT) as setup, start(sites) as running:
        running.wait_ready()

        def attach(name: str) -> Attachment:
            return setup.manager.attach(setup.program, sites, "sites", name, pid=running.pid)

        with attach("one"):
            known = setup.addresses()
            with pytest.raises(SyscallError, match="has this address already") as caught:
                attach("one")
            assert caught.value.errno == errno.EEXIST
            assert setup.addresses() == known
            running.fire()
            assert len(setup.tracer.hits()) == 1
        with attach("one") as again:
            assert again.spec_ids == (0,)


def test_addresses_of_a_file_that_is_moved_need_a_process(sites: Path) -> None:
    with managing(sites, UprobeMethod.PERF_EVENT) as setup:
        with pytest.raises(SyscallError, match="give a pid") as caught:
            setup.manager.attach(setup.program, sites, "sites", "one")
        assert caught.value.errno == errno.EOPNOTSUPP


def test_addresses_of_a_file_that_is_not_moved_need_none() -> None:
    path = build("nopie", "args")
    with managing(path, UprobeMethod.PERF_EVENT) as setup, start(path, "-w") as running:
        running.wait_ready()
        with setup.manager.attach(setup.program, path, "args", "count3"):
            running.fire()
            (hit,) = (hit for hit in setup.tracer.hits() if hit.pid == running.pid)
            assert setup.addresses() == {hit.ip: 0}


def test_all_files_of_a_process_are_searched_where_none_is_named() -> None:
    path = build("default", "libpair")
    with managing(path) as setup, start(path, "-w") as running:
        running.wait_ready()
        with setup.manager.attach(
            setup.program, None, "libpair", "both", pid=running.pid
        ) as attachment:
            assert len(attachment._links) == 2
        with pytest.raises(TargetError, match="which file"):
            setup.manager.attach(setup.program, None, "libpair", "both")


def test_two_tracers_share_a_probe(tmp_path: Path) -> None:
    path = shared_semaphores(tmp_path)
    with (
        managing(path) as one,
        managing(path, UprobeMethod.PERF_LINK) as other,
        start(path, "-w") as running,
    ):
        running.wait_ready()
        for setup in (one, other):
            setup.manager.attach(setup.program, path, "sema_shared", "guarded")
        running.fire()
        assert len(one.tracer.hits()) == len(other.tracer.hits()) == 3
        one.manager.close()
        running.fire()
        assert len(other.tracer.hits()) == 3


def test_a_conflicting_semaphore_is_explained_and_leaves_nothing(tmp_path: Path) -> None:
    path = shared_semaphores(tmp_path)
    offset = read_probes(path).probes[0].sites[0].offset
    assert offset is not None
    with managing(path) as setup, start(path, "-w") as running:
        running.wait_ready()
        before = running.state()
        with contextlib.closing(setup.tracer.attach([UprobeSite(offset)])[0]):
            with pytest.raises(SyscallError, match="another semaphore") as caught:
                setup.manager.attach(setup.program, path, "sema_shared", "guarded")
            assert caught.value.errno == errno.EINVAL
            assert running.state() == before
        with setup.manager.attach(setup.program, path, "sema_shared", "guarded") as attachment:
            assert attachment.spec_ids[0] in range(3)


@EVERY_WAY
def test_a_process_that_has_ended_is_named(sites: Path, via: UprobeMethod) -> None:
    with start(sites) as running:
        running.wait_ready()
        pid = running.pid
    with managing(sites, via) as setup:
        with pytest.raises(TargetError, match=f"no process {pid}"):
            setup.manager.attach(setup.program, sites, "sites", "one", pid=pid)
        assert setup.addresses() == {}


def test_a_process_that_ends_between_looking_and_attaching(
    sites: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(sites) as running, managing(sites) as setup:
        running.wait_ready()

        def collect_and_end(target: str | None, wanted: AttachSpec) -> Collection:
            found = collect(target, wanted)
            running.kill()
            return found

        monkeypatch.setattr("usdt.libbpf.manager.collect", collect_and_end)
        with pytest.raises(SyscallError, match=f"process {running.pid} has ended") as caught:
            setup.manager.attach(setup.program, sites, "sites", "one", pid=running.pid)
        assert caught.value.errno == errno.ESRCH


_LIMITED = """
import resource, sys
from pathlib import Path
sys.path[:0] = ["tests/support", "tests/live"]
soft, hard, path = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
from managing import managing
from usdt.base.errors import SyscallError
from usdt.bpf.link import UprobeMethod
with managing(path, UprobeMethod.PERF_LINK) as setup:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        print(setup.manager.attach(setup.program, path, "sites", "ten").sites)
    except SyscallError as err:
        print(err, setup.manager._ids.take(1))
"""


@pytest.mark.parametrize(
    ("hard", "expected"),
    [
        pytest.param(4096, "10", id="a soft limit is raised"),
        pytest.param(
            24,
            "20 descriptors of at most 24: Too many open files (by perf events each site needs its "
            "own; raise the limit: ulimit -n) [0]",
            id="a hard limit is told before anything is attached",
        ),
    ],
)
def test_descriptors(tmp_path: Path, cookies: None, hard: int, expected: str) -> None:
    path = build_sites(tmp_path, {"ten": [SYNTAX.pointer] * 10})
    # Who has this capability raises hard limits, too.
    unprivileged = (need_program("setpriv", "util-linux"), "--bounding-set=-sys_resource")
    done = subprocess.run(
        [*unprivileged, sys.executable, "-c", _LIMITED, "20", str(hard), str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.rstrip().endswith(expected)


def test_a_manager_detaches_what_is_left(sites: Path) -> None:
    with managing(sites) as setup, start(sites) as running:
        running.wait_ready()
        attachment = setup.manager.attach(setup.program, sites, "sites", "one")
        setup.manager.close()
        assert attachment.closed
        running.fire()
        assert setup.tracer.hits() == []
