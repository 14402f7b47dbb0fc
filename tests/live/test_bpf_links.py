"""bpf against the running kernel: uprobes with cookies and semaphores."""

from __future__ import annotations

import errno
import fcntl
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fixtures import Fixture, start
from house import ROOT
from patience import patient
from recorder import COOKIES, WAYS, places, recorder, shared_semaphores, sites_of, tracing
from tracing_tools import bias, semaphores

from usdt.base.errors import NotSupported, SyscallError
from usdt.base.machine import PROCESS_MACHINE
from usdt.bpf import features
from usdt.bpf import link as links
from usdt.bpf._uapi import AttachType, ProgType
from usdt.bpf.asm.assembler import Assembler
from usdt.bpf.asm.insn import R0
from usdt.bpf.features import best_uprobe_method, have_uprobe_multi
from usdt.bpf.link import (
    PerfLink,
    UprobeMethod,
    UprobeSite,
    attach_uprobe_multi,
    attach_uprobe_perf,
    close_links,
    reaches_threads,
    takes_uprobe_multi,
)
from usdt.bpf.program import ProgramSpec

pytestmark = pytest.mark.usefixtures("ringbuf")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Three sites with one semaphore, and two with another."""
    return shared_semaphores(tmp_path)


def semaphore(running: Fixture, path: Path, name: str) -> int:
    """The 16-bit counter of a probe, as it is in the process's memory."""
    return semaphores(running.pid, path)[name]


def counted(running: Fixture, path: Path, sites: int) -> tuple[int, int]:
    """What a semaphore of so many sites may be: the kernel counts breakpoints, new ones or all."""
    return sites, sites * times_mapped(running.pid, path)


def times_mapped(pid: int, path: Path) -> int:
    """In how many places of a process a site lies that the kernel takes for code.

    It is more than one where pages have 64 KiB: what is read-only once it is relocated may be in
    the same page of the file, and is mapped once more.
    """
    found = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        addresses, access, offset, *_, name = line.split(maxsplit=5)
        start, end = (int(address, 16) for address in addresses.split("-"))
        inside = int(offset, 16) <= sites_of(path)[0][1].offset < int(offset, 16) + end - start
        found += name.strip() == str(path) and "w" not in access and inside
    return found


@WAYS
def test_every_hit_brings_its_sites_cookie_and_address(program: Path, way: str) -> None:
    with tracing(program, way) as tracer, start(program, "-w", "-n", 7) as running:
        running.wait_ready()
        with tracer.attached(places(program, *COOKIES)):
            assert running.fire() == 7 * 5
        hits = tracer.hits()
        assert [hit.cookie for hit in hits] == list(COOKIES) * 7
        where = bias(running.pid, program)
        addresses = [site.address for _, site in sites_of(program)]
        assert [hit.ip - where for hit in hits] == addresses * 7
        assert {(hit.pid, hit.tid) for hit in hits} == {(running.pid, running.pid)}
        assert [hit.number for hit in hits] == list(range(35))
        assert tracer.count() == 35
        assert len(running.finish()) == 35


@WAYS
def test_a_closed_link_brings_nothing_more(program: Path, way: str) -> None:
    with tracing(program, way) as tracer, start(program, "-w") as running:
        running.wait_ready()
        links = tracer.attach(places(program, *COOKIES))
        running.fire()
        for link in links:
            link.close()
            link.close()
            assert link.fd.closed
        running.fire()
        assert len(tracer.hits()) == 5
        assert tracer.count() == 5


@WAYS
def test_a_link_outlives_its_program_object(program: Path, way: str) -> None:
    with tracing(program, way) as tracer, start(program, "-w") as running:
        running.wait_ready()
        with tracer.attached(places(program, *COOKIES)):
            tracer.program.close()
            running.fire()
        assert len(tracer.hits()) == 5


@WAYS
def test_only_the_process_that_was_asked_for(program: Path, way: str) -> None:
    with (
        tracing(program, way) as tracer,
        start(program, "-w") as wanted,
        start(program, "-w") as other,
    ):
        wanted.wait_ready()
        other.wait_ready()
        with tracer.attached(places(program, *COOKIES), pid=wanted.pid):
            assert semaphore(wanted, program, "guarded") > 0
            other.fire()
            wanted.fire()
            other.fire()
        hits = tracer.hits()
        assert len(hits) == 5
        assert {hit.pid for hit in hits} == {wanted.pid}


@WAYS
def test_every_process_where_none_is_named(program: Path, way: str) -> None:
    with (
        tracing(program, way) as tracer,
        start(program, "-w") as before,
        tracer.attached(places(program, *COOKIES)),
        start(program, "-w") as later,
    ):
        for running in (before.wait_ready(), later.wait_ready()):
            running.fire()
            assert [hit.pid for hit in tracer.hits()] == [running.pid] * 5


def test_a_perf_event_alone_brings_addresses_and_no_cookies(program: Path) -> None:
    with tracing(program, "ioctl") as tracer, start(program, "-w") as running:
        running.wait_ready()
        with tracer.attached(places(program, *COOKIES), pid=running.pid):
            assert semaphore(running, program, "guarded") in counted(running, program, 3)
            running.fire()
        assert semaphore(running, program, "guarded") == 0
        hits = tracer.hits()
        where = bias(running.pid, program)
        assert [hit.ip - where for hit in hits] == [site.address for _, site in sites_of(program)]
        assert {hit.cookie for hit in hits} == {0}


def test_closing_side_by_side_closes_everything_and_again_is_fine(program: Path) -> None:
    with tracing(program, "perf") as tracer:
        links = tracer.attach(places(program, *COOKIES))
        close_links(links)
        assert all(link.fd.closed for link in links)
        close_links(links)
    close_links([])


def test_without_threads_links_are_closed_one_by_one(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with tracing(program, "perf") as tracer:
        links = tracer.attach(places(program, *COOKIES))
        assert len(links) > 1
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refused)
            close_links(links)
        assert all(link.fd.closed for link in links)


def test_a_program_knows_what_it_was_loaded_for(program: Path, uprobe_multi: None) -> None:
    with tracing(program, "multi") as multi, tracing(program, "perf") as perf:
        assert takes_uprobe_multi(multi.program) is True
        assert takes_uprobe_multi(perf.program) is False


def test_links_with_a_process_reach_its_threads(program: Path, uprobe_multi: None) -> None:
    with tracing(program, "multi") as tracer:
        assert reaches_threads(tracer.program)


def test_links_that_reach_one_thread_are_not_used(
    uprobe_multi: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A mock: no kernel of the virtual machines has the fault. It looked at the path first.
    def unfixed(*_: object, **__: object) -> None:
        raise SyscallError(errno.EBADF, "bpf(BPF_LINK_CREATE)")

    monkeypatch.setattr(links, "attach_uprobe_multi", unfixed)
    monkeypatch.setattr(features, "links_filter_processes", lambda: False)  # those are newer
    assert not have_uprobe_multi.__wrapped__()


def test_the_best_way_is_the_newest(uprobe_multi: None) -> None:
    assert best_uprobe_method() is UprobeMethod.UPROBE_MULTI


def test_a_perf_link_owns_its_event(program: Path) -> None:
    with tracing(program, "perf") as tracer:
        (link,) = tracer.attach(places(program, *COOKIES)[:1])
        assert isinstance(link, PerfLink)
        assert not link._event.closed
        with link:
            assert link.fd.fileno() != link._event.fileno()
        assert link._event.closed


def test_returns_are_probed_as_well(program: Path, uprobe_multi: None) -> None:
    with tracing(program, "perf") as tracer, start(program, "-w", "-n", 3) as running:
        running.wait_ready()
        path, entry = str(program), UprobeSite(_function(program, "fire"), 0, 2)
        back = UprobeSite(entry.offset, 0, 4)
        multi = ProgramSpec(recorder(), attach_type=AttachType.TRACE_UPROBE_MULTI).load(
            {"events": tracer.ring.map, "count": tracer._count}
        )
        with (
            multi,
            attach_uprobe_perf(tracer.program, path, entry),
            attach_uprobe_perf(tracer.program, path, back, on_return=True),
            attach_uprobe_multi(multi, path, [UprobeSite(entry.offset, 0, 8)], on_return=True),
        ):
            running.fire()
        hits = tracer.hits()
        assert [hit.cookie for hit in hits if hit.cookie == 2] == [2] * 3
        assert sorted(hit.cookie for hit in hits) == [2] * 3 + [4] * 3 + [8] * 3
        assert [hit.cookie for hit in hits][::3] == [2] * 3  # the entry comes first each time


def _function(path: Path, name: str) -> int:
    from usdt.elf.file import ElfFile
    from usdt.elf.symbol_table import symbol_addresses

    with ElfFile(path) as elf:
        (address,) = symbol_addresses(elf, name)
        if (
            PROCESS_MACHINE == "ppc64le"
        ):  # the entry of calls within a file is behind two instructions
            address += 8
        offset = elf.offset_of(address, executable=True)
    assert offset
    return offset


@WAYS
def test_semaphores_are_raised_while_a_link_lives(program: Path, way: str) -> None:
    with tracing(program, way) as tracer, start(program, "-w") as running:
        running.wait_ready()
        assert semaphore(running, program, "guarded") == semaphore(running, program, "value") == 0
        with tracer.attached(places(program, *COOKIES)):
            for name, sites in (("guarded", 3), ("value", 2)):  # once for each site
                assert semaphore(running, program, name) in counted(running, program, sites)
            with tracer.attached(places(program, *COOKIES)):
                assert semaphore(running, program, "guarded") >= 3
            assert semaphore(running, program, "guarded") in counted(running, program, 3)
            with start(program, "-w") as later:
                later.wait_ready()
                assert semaphore(later, program, "guarded") in counted(later, program, 3)
        assert semaphore(running, program, "guarded") == semaphore(running, program, "value") == 0


@WAYS
def test_a_guarded_probe_is_silent_without_its_semaphore(program: Path, way: str) -> None:
    with tracing(program, way) as tracer, start(program, "-w") as running:
        running.wait_ready()
        with tracer.attached(places(program, *COOKIES, semaphores=False)):
            assert running.fire() == 2
        assert [hit.cookie for hit in tracer.hits()] == list(COOKIES[3:])


_TRACER = """\
import json, sys, time
from usdt.bpf._uapi import AttachType
from usdt.bpf.asm.assembler import Assembler
from usdt.bpf.asm.insn import R0
from usdt.bpf.link import UprobeSite, attach_uprobe_multi, attach_uprobe_perf
from usdt.bpf.program import ProgramSpec

way, path, sites = sys.argv[1], sys.argv[2], [UprobeSite(*site) for site in json.loads(sys.argv[3])]
asm = Assembler()
asm.mov(R0, 0)
asm.exit()
kind = AttachType.TRACE_UPROBE_MULTI if way == "multi" else AttachType.NONE
program = ProgramSpec(asm.assemble(), attach_type=kind).load({})
if way == "multi":
    links = [attach_uprobe_multi(program, path, sites)]
else:
    links = [attach_uprobe_perf(program, path, site) for site in sites]
print("ready", flush=True)
time.sleep(60)
"""


@WAYS
def test_semaphores_fall_when_the_tracer_is_killed(program: Path, way: str, cookies: None) -> None:
    if way == "multi" and not have_uprobe_multi():
        raise NotSupported("uprobe_multi", (6, 6))
    sites = str([[site.offset, site.ref_ctr_offset] for site in places(program, *COOKIES)])
    with start(program, "-w") as running:
        running.wait_ready()
        tracer = subprocess.Popen(
            [sys.executable, "-c", _TRACER, way, str(program), sites],
            cwd=ROOT,
            stdout=subprocess.PIPE,
        )
        with tracer:
            try:
                assert tracer.stdout
                assert tracer.stdout.readline() == b"ready\n"
                assert semaphore(running, program, "guarded") in counted(running, program, 3)
            finally:
                tracer.kill()
        assert tracer.returncode == -signal.SIGKILL
        deadline = time.monotonic() + patient(100)
        while semaphore(running, program, "guarded") or semaphore(running, program, "value"):
            assert time.monotonic() < deadline, "semaphores stay raised after kill -9"
            time.sleep(0.01)
        assert running.fire() == 2  # the guarded ones are silent again


@WAYS
@pytest.mark.parametrize(
    ("where", "number"),
    [
        pytest.param("no such file", errno.ENOENT, id="no such file"),
        pytest.param("beyond the end", errno.EINVAL, id="an offset beyond the file"),
        pytest.param("another semaphore", errno.EINVAL, id="a place held with another semaphore"),
        pytest.param("no such process", errno.ESRCH, id="a process that is gone"),
    ],
)
def test_what_cannot_be_attached_says_why(
    program: Path, way: str, where: str, number: int, tmp_path: Path
) -> None:
    good = places(program, *COOKIES)[0]
    with tracing(program, way) as tracer, tracer.attached([good]):
        site, pid = good, 0
        if where == "no such file":
            tracer.path = str(tmp_path / "nothing")
        elif where == "beyond the end":
            site = UprobeSite(1 << 40)
        elif where == "another semaphore":
            site = UprobeSite(good.offset, good.ref_ctr_offset + 8)
        else:
            pid = (1 << 22) + 1  # above the greatest pid_max
        with pytest.raises(SyscallError) as caught:
            tracer.attach([site], pid=pid)
        assert caught.value.errno == number
        assert caught.value.call == (
            "bpf(BPF_LINK_CREATE)" if way == "multi" else "perf_event_open"
        )


def test_one_bad_site_of_many_attaches_none(program: Path) -> None:
    sites = [*places(program, *COOKIES), UprobeSite(1 << 40)]
    with tracing(program, "multi") as tracer, start(program, "-w") as running:
        running.wait_ready()
        with pytest.raises(SyscallError):
            tracer.attach(sites)
        running.fire()
        assert not tracer.hits()
        assert semaphore(running, program, "guarded") == 0


def test_a_perf_event_cannot_say_a_semaphore_beyond_4_gib(program: Path) -> None:
    with (
        tracing(program, "perf") as tracer,
        pytest.raises(NotSupported, match=r"needs Linux 6\.6 or newer"),
    ):
        tracer.attach([UprobeSite(0, 1 << 32)])


def test_a_program_that_cannot_be_linked_leaves_no_event_behind(
    program: Path, cookies: None
) -> None:
    # A socket filter is not for perf events; the fixture of every test finds an event left open.
    asm = Assembler()
    asm.mov(R0, 0)
    asm.exit()
    with (
        ProgramSpec(asm.assemble(), type=ProgType.SOCKET_FILTER).load({}) as unfit,
        pytest.raises(NotSupported) as caught,
    ):
        attach_uprobe_perf(unfit, str(program), places(program, *COOKIES)[0])
    assert isinstance(caught.value.__cause__, SyscallError)


def test_children_inherit_no_descriptor(program: Path) -> None:
    with tracing(program, "perf") as tracer:
        (link,) = tracer.attach(places(program, *COOKIES)[:1])
        assert isinstance(link, PerfLink)
        with link:
            owners = (link.fd, link._event, tracer.program.fd, tracer.ring.fd, tracer._count.fd)
            for fd in owners:
                assert fcntl.fcntl(fd.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC
