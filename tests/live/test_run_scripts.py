"""Scripts of Debian's package bpftrace, each with what it is to see, beside bpftrace itself."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from debian_scripts import AT_END, OF_FUNCTIONS, SCRIPTS, WHILE_IT_RUNS
from patience import patient

from usdt.base.errors import TracingError
from usdt.targets.search.libraries import find_library
from usdt.tracefs.mount import read_format

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = Path("/usr/sbin")
_COMMAND = Path(sys.executable).with_name("usdt")

_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"

# Script → modules that have its functions.
_MODULES = {"mdflush": ("md-mod", "raid0"), "xfsdist": ("libcrc32c", "xfs")}

# bpftrace says "Attaching" and runs BEGIN before it attaches. With this in its environment it
# prints the variable's name when all of its probes are attached.
_NOTIFY = "__BPFTRACE_NOTIFY_PROBES_ATTACHED"

# What bpftrace 0.17 cannot: it has no names of processes that have ended, and looks for
# pthread_create() where glibc had it before 2.34.
_NOT_IN_BPFTRACE = ("ssllatency", "threadsnoop")


@dataclass(slots=True)
class _Run:
    """A script at work in one of the tools, and the file that it prints to."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def prints(self, pattern: str) -> bool:
        """Whether it comes to print that, before it ends."""
        end = time.monotonic() + patient(100)
        while time.monotonic() < end:
            if re.search(pattern, self.text, re.MULTILINE):
                return True
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        return False

    def found(self, pattern: str) -> list[str]:
        """What it printed of that, without its numbers: they are times, or have been compared."""
        lines = (found[0] for found in re.finditer(pattern, self.text, re.MULTILINE))
        return sorted({" ".join(re.sub(r"\d+", "N", line).split()) for line in lines})

    def interrupt(self) -> None:
        """End it by ^C; it prints its maps."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(patient(100)) == 0, self.text

    def interrupt_peer(self) -> None:
        """End bpftrace by ^C.

        It notices a signal only where that interrupts its wait for events, so one that comes while
        it prints an event is lost. Being stopped interrupts the wait as well, and nothing else.
        """
        self.process.send_signal(signal.SIGINT)
        end = time.monotonic() + patient(100)
        while self.process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(0.2)
            self.process.send_signal(signal.SIGSTOP)
            self.process.send_signal(signal.SIGCONT)
        assert self.process.poll() == 0, self.text


@pytest.fixture
def tools(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[_Run]]:
    """A script at work in ours, and in bpftrace if that is installed."""
    script = _FOLDER / f"{request.param}.bt"
    if not script.exists():
        pytest.skip(f"needs {script}: apt-get install bpftrace")
    _load_modules(request.param)
    commands = [[str(_COMMAND), "run", str(script)]]
    peer = shutil.which("bpftrace")
    if peer and request.param not in _NOT_IN_BPFTRACE:
        commands.append([peer, str(script)])
    runs, env = [], {**os.environ, _NOTIFY: "1"}
    with contextlib.ExitStack() as stack:
        for index, words in enumerate(commands):
            output = tmp_path / f"output{index}"
            file = stack.enter_context(output.open("wb"))
            process = subprocess.Popen(words, env=env, stdout=file, stderr=subprocess.STDOUT)
            runs.append(_Run(process, output))
        try:
            yield runs
        finally:
            for run in runs:
                run.process.kill()
                run.process.wait()


def _load_modules(name: str) -> None:
    # A guest loads none by itself; elsewhere it is not ours to do.
    if "USDT_GUEST" not in os.environ:
        return
    folder = Path("/lib/modules", os.uname().release)
    for module in _MODULES.get(name, ()):
        for path in folder.glob(f"kernel/**/{module}.ko*"):
            subprocess.run(["insmod", str(path)], check=False)


def _saw(tools: list[_Run], load: str, pattern: str, *, name: str) -> None:
    ours, *peers = tools
    assert ours.prints("^Attach"), ours.text
    # bpftrace of another version than the script, or without the kernel's headers, refuses some.
    if peers and not peers[0].prints(f"^{_NOTIFY}$"):
        print(f"{name}: not beside bpftrace: {peers.pop().text}")
    words, env = [sys.executable, "-c", load], {**os.environ, "PATH": _PATH}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    with subprocess.Popen(words, env=env, **pipes) as process:
        wanted = pattern.replace("{pid}", str(process.pid))
        if name in WHILE_IT_RUNS:
            assert all(run.prints(wanted) for run in (ours, *peers)), [run.text for run in tools]
        process.communicate(timeout=patient(100))
        assert process.returncode == 0
    for run in (ours, *peers):
        if name not in AT_END:
            assert run.prints(wanted), run.text
        if run is ours:
            run.interrupt()
        else:
            run.interrupt_peer()
        assert run.found(wanted), run.text
    for peer in peers:
        print(f"{name}: beside bpftrace")
        if "{pid}" in pattern:  # of this process alone; others come and go
            assert ours.found(wanted) == peer.found(wanted)


@pytest.mark.root
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs nanosleep(2)'s number on x86-64")
@pytest.mark.parametrize(
    ("tools", "name"), [(n, n) for n in SCRIPTS], indirect=["tools"], ids=SCRIPTS
)
def test_what_a_script_prints(tools: list[_Run], name: str) -> None:
    _skip_without_its_needs(name)
    _saw(tools, *SCRIPTS[name], name=name)


@functools.cache
def _functions(_modules: str) -> frozenset[str]:
    command = [str(_COMMAND.with_name("kprobe")), "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    return frozenset(listed.stdout.split())


def _has_member(structure: str, name: str) -> bool:
    command = [str(_COMMAND.with_name("kprobe")), "info", "--type", f"struct {structure}"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    return re.search(rf"\W{name}\W", shown.stdout) is not None


def _has_disk() -> bool:
    return any(not one.name.startswith(("loop", "ram")) for one in Path("/sys/block").iterdir())


# Script → what it needs of a machine, and whether this one has it.
_NEEDS = {
    "runqlen": ("struct cfs_rq.nr_running", lambda: _has_member("cfs_rq", "nr_running")),
    "biosnoop": ("struct request_queue.disk", lambda: _has_member("request_queue", "disk")),
    "tcpdrop": (
        "reasons of skb:kfree_skb (Linux 5.17)",
        lambda: "enum skb_drop_reason" in _event_format("skb", "kfree_skb"),
    ),
    "loads": (
        "avenrun in /proc/kallsyms (CONFIG_KALLSYMS_ALL)",
        lambda: " avenrun\n" in Path("/proc/kallsyms").read_text(),
    ),
    "bashreadline": ("/bin/bash", Path("/bin/bash").exists),
    "sslsnoop": ("OpenSSL", lambda: find_library("libssl")),
    "ssllatency": ("OpenSSL", lambda: find_library("libssl")),
    "xfsdist": ("mkfs.xfs", lambda: shutil.which("mkfs.xfs", path=_PATH)),
    "bitesize": ("a disk", _has_disk),
    "writeback": ("a disk", _has_disk),
}


def _event_format(category: str, name: str) -> str:
    try:
        return read_format(category, name)
    except TracingError:
        return ""


def _skip_without_its_needs(name: str) -> None:
    what, have = _NEEDS.get(name, ("", lambda: True))
    if not have():
        pytest.skip(f"{name}.bt needs {what}")


def _lacking(name: str) -> list[str]:
    # The functions of blocks of which this kernel has none.
    script = (_FOLDER / f"{name}.bt").read_text()
    probes = r"((?:^k(?:ret)?probe:\w+,\n)*^k(?:ret)?probe:\w+)$"
    blocks = re.findall(probes, script, re.MULTILINE)
    wanted = [re.findall(r"probe:(\w+)", block) for block in blocks]
    known = _functions(Path("/proc/modules").read_text())
    return [one for names in wanted if not known.intersection(names) for one in names]


@pytest.mark.root
@pytest.mark.usefixtures("kprobes", "ringbuf", "vmlinux_btf")
@pytest.mark.parametrize(
    ("tools", "name"), [(n, n) for n in OF_FUNCTIONS], indirect=["tools"], ids=OF_FUNCTIONS
)
def test_what_a_script_of_functions_prints(tools: list[_Run], name: str) -> None:
    if lacking := _lacking(name):
        ours = tools[0]
        assert ours.process.wait(patient(100)) == 1, ours.text
        assert re.fullmatch(f"Error: .*({'|'.join(lacking)}).*\n", ours.text)
        pytest.skip(f"this kernel lacks {' and '.join(lacking)}, or lets nobody probe them")
    _skip_without_its_needs(name)
    _saw(tools, *OF_FUNCTIONS[name], name=name)
