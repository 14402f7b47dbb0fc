"""Scripts of Debian's package bpftrace, each with what it is to see."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import patient

from usdt.base.errors import TracingError
from usdt.targets.search.libraries import find_library
from usdt.tracefs.mount import read_format

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = Path("/usr/sbin")
_COMMAND = Path(sys.executable).with_name("usdt")

# What a process does that is named by its PID below; the number of a system call is that of x86-64.
_SLEEP = """
import ctypes
class Time(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
ctypes.CDLL(None).syscall(35, ctypes.byref(Time(0, 123456789)), None)
"""
_OPEN = "import os\ntry: os.open('/no/such/file', os.O_RDONLY)\nexcept OSError: pass\n"
_KILL = "import os, signal\nos.kill(os.getpid(), signal.SIGCONT)\n"
_USER = "import os\nos.setresuid(0, 0, 0)\n"
_SYNC = "import os\nos.sync()\n"
_STAT = "import os\ntry: os.statvfs('/no/such/file')\nexcept OSError: pass\n"
_EXEC = "import os\nos.execv('/bin/echo', ['echo', 'one', 'two words'])\n"
_BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"  # some thirty samples of cpuwalk

_SHELL = """
import os, pty, select
pid, terminal = pty.fork()
if not pid:
    os.execv("/bin/bash", ["bash", "--norc", "-i"])
os.write(terminal, b"echo one two\\nexit\\n")
try:
    while select.select([terminal], [], [], 60)[0] and os.read(terminal, 4096):
        pass
except OSError:  # the shell has ended
    pass
os.waitpid(pid, 0)
"""
_HOST = "import socket\nsocket.getaddrinfo('localhost', 80)\n"
_TLS = """
import ssl
server, client = (ssl.SSLContext(one) for one in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
for one in (server, client):  # without a certificate
    one.maximum_version = ssl.TLSVersion.TLSv1_2
    one.set_ciphers("aNULL:@SECLEVEL=0")
there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
waiting = [server.wrap_bio(there, back, server_side=True), client.wrap_bio(back, there)]
while waiting:
    for one in [*waiting]:
        try:
            one.do_handshake()
        except ssl.SSLWantReadError:
            continue
        waiting.remove(one)
"""
_THREAD = "import threading\nthreading.Thread(target=print).start()\n"
_WRITE = """
import os, tempfile
with tempfile.TemporaryFile(dir=".") as file:
    file.write(bytes(1 << 20))
    file.flush()
    os.fsync(file.fileno())
    file.write(bytes(1 << 20))
    file.flush()
    os.sync()
"""
# In a network of its own, whose only device goes down while a connection has data to send.
_DROP = """
import ctypes, fcntl, socket, struct
assert ctypes.CDLL(None).unshare(0x40000000) == 0  # CLONE_NEWNET
def set_up(flags):
    with socket.socket() as one:
        fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", flags))  # SIOCSIFFLAGS
set_up(1)
with socket.create_server(("127.0.0.1", 0)) as server:
    client = socket.create_connection(server.getsockname())
    accepted, _ = server.accept()
    set_up(0)
    client.send(b"x")
"""
_LOADS = "import time\ntime.sleep(1.5)\n"

# Script → what a process does, and what the script prints of it while it runs or at the end.
_SCRIPTS = {
    "naptime": (_SLEEP, r"^[\d:]{8} +\d+ +\S+ +{pid} +\S+ +0\.123$"),
    "opensnoop": (_OPEN, r"^{pid} +\S+ +-1 +2 /no/such/file$"),
    "killsnoop": (_KILL, rf"^[\d:]{{8}} +{{pid}} +\S+ +{signal.SIGCONT:d} +\d+ +0$"),
    "setuids": (_USER, r"{pid} +\S+ +0 +setresuid +ruid=0 euid=0 suid=0 \(0\)$"),
    "syncsnoop": (_SYNC, r"^[\d:]{8} +{pid} +\S+ +tracepoint:syscalls:sys_enter_sync$"),
    "statsnoop": (_STAT, r"^{pid} +\S+ +2 /no/such/file$"),
    "execsnoop": (_EXEC, r"^\d+ +{pid} +echo one two words$"),
    "pidpersec": (_BUSY, r"^[\d:]{8} PIDs/sec: @: \d+$"),
    "cpuwalk": (_BUSY, r"^\[[^|]+ [1-9]\d* \|@"),
    "runqlat": (_BUSY, r"^\[[^|]+ [1-9]\d* \|@"),
    "syscount": (_BUSY, r"^@process\[\S+\]: [1-9]\d*$"),
    "runqlen": (_BUSY, r"^\[0\] +[1-9]"),
    "loads": (_LOADS, r"^[\d:]{8} load averages:( \d+\.\d{3}){3}$"),
    "bashreadline": (_SHELL, r"^[\d:]{8} +\d+ +echo one two$"),
    "gethostlatency": (_HOST, r"^[\d:]{8} +{pid} +\S+ +\d+ localhost$"),
    "threadsnoop": (_THREAD, r"^\d+ +{pid} +\S+ +\w+$"),
    "sslsnoop": (_TLS, r"^\d+ +{pid} +\S+ +\d+ +1 SSL_do_handshake$"),
    "ssllatency": (_TLS, r"^@stat\[SSL_do_handshake\]: count [1-9]"),
    "bitesize": (_WRITE, r"^@\[\S+\]:\n\["),
    "writeback": (_WRITE, r"^[\d:]{8} +\S+ +\d+ +sync +\d+\.\d{3}$"),
    "tcpdrop": (_DROP, r"^[\d:]{8} +{pid} +\S+ +127\.0\.0\.1:\d+ +127\.0\.0\.1:\d+ +ESTABLISHED"),
}
_AT_END = ("cpuwalk", "runqlat", "syscount", "runqlen", "ssllatency", "bitesize")

_ROOT = "import os\nos.chroot('/')\n"
_UNIX = """
import socket
a, b = socket.socketpair()
a.send(b"hello")
b.recv(5)
"""
_TCP = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    with socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        client.send(bytes(4096))
        accepted.recv(4096, socket.MSG_WAITALL)
    accepted.recv(1)
    accepted.close()
"""
_HERE = r"127\.0\.0\.1 +\d+ +127\.0\.0\.1 +\d+"

# The same for scripts that trace functions of the kernel. Without what a process does, it is looked
# whether the script attaches: it takes a full disk, a lost packet or the like to see it print.
_OF_FUNCTIONS = {
    "capable": (_ROOT, r"^[\d:]{8} +0 +{pid} +\S+ +18 +CAP_SYS_CHROOT +\d+$"),
    "dcsnoop": (_OPEN, r"^\d+ +{pid} +\S+ +[RM] no/such/file$"),
    "tcpconnect": (_TCP, rf"^[\d:]{{8}} +{{pid}} +\S+ +{_HERE} *$"),
    "tcpaccept": (_TCP, rf"^[\d:]{{8}} +{{pid}} +\S+ +{_HERE} +\d+/\d+$"),
    "tcplife": (_TCP, rf"^{{pid}} +\S+ +{_HERE} +\d+ +\d+ +\d+$"),
    "tcpsynbl": (_TCP, r"^@backlog\[\d+\]:\s*\n\[0"),
    "undump": (_UNIX, r"^[\d:]{8} \S+ +{pid} +5 +hello$"),
    "vfscount": (_OPEN, r"^@\[vfs_open\]: [1-9]\d*$"),
    "vfsstat": (_OPEN, r"^@\[vfs_open\]: [1-9]\d*$"),
    "biolatency": (None, ""),
    "biosnoop": (None, ""),
    "biostacks": (None, ""),
    "mdflush": (None, ""),
    "oomkill": (None, ""),
    "swapin": (None, ""),
    "tcpretrans": (None, ""),
    "xfsdist": (None, ""),
}


@pytest.fixture
def outputs(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Path, subprocess.Popen[str]]]:
    """A script that runs, and the file that it prints to."""
    script = _FOLDER / f"{request.param}.bt"
    if not script.exists():
        pytest.skip(f"needs {script}: apt-get install bpftrace")
    output = tmp_path / "output"
    with output.open("w") as file:
        words = [str(_COMMAND), "run", str(script)]
        run = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, text=True)
    try:
        yield output, run
    finally:
        run.kill()
        run.wait()


def _await(output: Path, run: subprocess.Popen[str], pattern: str) -> bool:
    end = time.monotonic() + patient(30)
    while time.monotonic() < end:
        if re.search(pattern, output.read_text(), re.MULTILINE):
            return True
        if run.poll() is not None:
            break
        time.sleep(0.05)
    return False


def _saw(
    outputs: tuple[Path, subprocess.Popen[str]], load: str, pattern: str, *, at_end: bool
) -> None:
    output, run = outputs
    assert _await(output, run, "^Attach"), output.read_text()
    with subprocess.Popen([sys.executable, "-c", load], stdout=subprocess.DEVNULL) as process:
        process.wait()
    wanted = pattern.replace("{pid}", str(process.pid))
    if not at_end:
        assert _await(output, run, wanted), output.read_text()
    run.send_signal(signal.SIGINT)
    assert run.wait(patient(20)) == 0, output.read_text()
    assert re.search(wanted, output.read_text(), re.MULTILINE), output.read_text()


@pytest.mark.root
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs nanosleep(2)'s number on x86-64")
@pytest.mark.parametrize(
    ("outputs", "name"), [(n, n) for n in _SCRIPTS], indirect=["outputs"], ids=_SCRIPTS
)
def test_what_a_script_prints(outputs: tuple[Path, subprocess.Popen[str]], name: str) -> None:
    _skip_without_its_needs(name)
    _saw(outputs, *_SCRIPTS[name], at_end=name in _AT_END)


@functools.cache
def _functions() -> frozenset[str]:
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
    return [one for names in wanted if not _functions().intersection(names) for one in names]


@pytest.mark.root
@pytest.mark.usefixtures("kprobes", "ringbuf", "vmlinux_btf")
@pytest.mark.parametrize(
    ("outputs", "name"), [(n, n) for n in _OF_FUNCTIONS], indirect=["outputs"], ids=_OF_FUNCTIONS
)
def test_what_a_script_of_functions_prints(
    outputs: tuple[Path, subprocess.Popen[str]], name: str
) -> None:
    load, pattern = _OF_FUNCTIONS[name]
    if lacking := _lacking(name):
        output, run = outputs
        assert run.wait(patient(60)) == 1, output.read_text()
        assert re.fullmatch(f"Error: .*({'|'.join(lacking)}).*\n", output.read_text())
        pytest.skip(f"this kernel lacks {' and '.join(lacking)}, or lets nobody probe them")
    _skip_without_its_needs(name)
    if load is not None:
        _saw(outputs, load, pattern, at_end=name in ("tcpsynbl", "vfscount"))
        return
    output, run = outputs
    assert _await(output, run, "^Attach"), output.read_text()
    run.send_signal(signal.SIGINT)
    assert run.wait(patient(20)) == 0, output.read_text()
