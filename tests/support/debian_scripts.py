"""What scripts of Debian's package bpftrace are to see: a load, and what it makes them print."""

from __future__ import annotations

import signal

__all__ = ("AT_END", "OF_FUNCTIONS", "SCRIPTS", "WHILE_IT_RUNS")

# A process that stays until its input is closed.
_STAY = """
import sys
sys.stdin.read()
"""
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
# The data cannot leave, and are sent again.
_RETRANSMISSION = f"{_DROP}    import time\n    time.sleep(1)\n"
_LOADS = "import time\ntime.sleep(1.5)\n"

# Script → what a process does, and what the script prints of it while it runs or at the end.
SCRIPTS = {
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
    "runqlen": (_BUSY, r"^\[0(\]|, 1\)) +[1-9]"),
    "loads": (_LOADS, r"^[\d:]{8} load averages:( \d+\.\d{3}){3}$"),
    "bashreadline": (_SHELL, r"^[\d:]{8} +\d+ +echo one two$"),
    "gethostlatency": (_HOST, r"^[\d:]{8} +{pid} +\S+ +\d+ localhost$"),
    "threadsnoop": (_THREAD, r"^\d+ +{pid} +\S+ +\w+$"),
    "sslsnoop": (f"{_TLS}{_STAY}", r"^\d+ +{pid} +\S+ +\d+ +1 SSL_do_handshake$"),
    "ssllatency": (_TLS, r"^@stat\[SSL_do_handshake\]: count [1-9]"),
    "bitesize": (_WRITE, r"^@\[\S+\]:\s*\n\["),
    "writeback": (_WRITE, r"^[\d:]{8} +\S+ +\d+ +sync +\d+\.\d{3}$"),
    "tcpdrop": (_DROP, r"^[\d:]{8} +{pid} +\S+ +127\.0\.0\.1:\d+ +127\.0\.0\.1:\d+ +ESTABLISHED"),
}
# bpftrace names the functions of processes that run, no others. The load stays until then.
WHILE_IT_RUNS = ("sslsnoop",)
AT_END = (
    *("cpuwalk", "runqlat", "syscount", "runqlen", "ssllatency", "bitesize"),
    *("tcpsynbl", "vfscount", "biolatency", "biostacks", "xfsdist"),
)

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
_CGROUP = """
import os
from pathlib import Path
root = Path("/sys/fs/cgroup")
(root / "cgroup.subtree_control").write_text("+memory")
group = root / "usdt-test"
group.mkdir(exist_ok=True)
(group / "memory.max").write_text(str(32 << 20))
"""
# A memory cgroup that is too small for what its process asks for.
_OOM = f"""{_CGROUP}
(group / "memory.oom.group").write_text("0")
pid = os.fork()
if not pid:
    (group / "cgroup.procs").write_text(str(os.getpid()))
    bytearray(os.urandom(1 << 20)) * 256
    os._exit(0)
assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == 9
group.rmdir()
"""
# A process that has more than its cgroup may have in memory, and a file to swap to.
_SWAP = f"""{_CGROUP}
import subprocess
image = Path("swap.image")
image.write_bytes(bytes(96 << 20))
image.chmod(0o600)
words = ["losetup", "--show", "-f", str(image)]
device = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
subprocess.run(["mkswap", device], check=True)
subprocess.run(["swapon", device], check=True)
pid = os.fork()
if not pid:
    (group / "cgroup.procs").write_text(str(os.getpid()))
    memory = bytearray(os.urandom(1 << 20)) * 48
    for _ in range(3):
        sum(memory[::4096])
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
group.rmdir()
subprocess.run(["swapoff", device], check=True)
subprocess.run(["losetup", "-d", device], check=True)
image.unlink()
"""
# A write to a disk of its own: a file behind a loop device.
_DISK = """
import os, subprocess, tempfile
with tempfile.NamedTemporaryFile() as file:
    file.truncate(8 << 20)
    words = ["losetup", "--show", "-f", file.name]
    device = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    try:
        with open(device, "r+b", buffering=0) as disk:
            disk.write(bytes(1 << 20))
            os.fsync(disk.fileno())
    finally:
        subprocess.run(["losetup", "-d", device], check=True)
"""
_XFS = """
import os, subprocess, tempfile
with tempfile.TemporaryDirectory() as folder:
    image, mount = f"{folder}/image", f"{folder}/mount"
    os.mkdir(mount)
    with open(image, "wb") as file:
        file.truncate(400 << 20)
    subprocess.run(["mkfs.xfs", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        with open(f"{mount}/file", "w+b", buffering=0) as file:
            file.write(bytes(4096))
            os.fsync(file.fileno())
            file.seek(0)
            file.read(4096)
    finally:
        subprocess.run(["umount", mount], check=True)
"""
_MD = """
import os, subprocess, tempfile
devices = []
with tempfile.TemporaryDirectory() as folder:
    for name in "ab":
        with open(f"{folder}/{name}", "wb") as file:
            file.truncate(8 << 20)
        words = ["losetup", "--show", "-f", f"{folder}/{name}"]
        run = subprocess.run(words, check=True, capture_output=True, text=True)
        devices.append(run.stdout.strip())
    os.environ["MDADM_NO_UDEV"] = "1"
    words = ["mdadm", "--build", "/dev/md0", "--run", "--level=0", "--raid-devices=2"]
    subprocess.run([*words, *devices], check=True)
    try:
        with open("/dev/md0", "r+b", buffering=0) as disk:
            disk.write(bytes(4096))
            os.fsync(disk.fileno())
    finally:
        subprocess.run(["mdadm", "--stop", "/dev/md0"], check=True)
        subprocess.run(["losetup", "-d", *devices], check=True)
"""
_HERE = r"127\.0\.0\.1 +\d+ +127\.0\.0\.1 +\d+"

# The same for scripts that trace functions of the kernel.
OF_FUNCTIONS = {
    "capable": (_ROOT, r"^[\d:]{8} +0 +{pid} +\S+ +18 +CAP_SYS_CHROOT +\d+$"),
    "dcsnoop": (_OPEN, r"^\d+ +{pid} +\S+ +[RM] no/such/file$"),
    "tcpconnect": (_TCP, rf"^[\d:]{{8}} +{{pid}} +\S+ +{_HERE} *$"),
    "tcpaccept": (_TCP, rf"^[\d:]{{8}} +{{pid}} +\S+ +{_HERE} +\d+/\d+$"),
    "tcplife": (_TCP, rf"^{{pid}} +\S+ +{_HERE} +\d+ +\d+ +\d+$"),
    "tcpsynbl": (_TCP, r"^@backlog\[\d+\]:\s*\n\[0"),
    "undump": (_UNIX, r"^[\d:]{8} \S+ +{pid} +5 +hello$"),
    "vfscount": (_OPEN, r"^@\[vfs_open\]: [1-9]\d*$"),
    "vfsstat": (_OPEN, r"^@\[vfs_open\]: [1-9]\d*$"),
    "biolatency": (_DISK, r"^@usecs:\s*\n\["),
    "biosnoop": (_DISK, r"^\d+ +loop\d+ +\S+ +\d+ +\d+$"),
    "biostacks": (_DISK, r"^@usecs\[\s*\n +\w+\+\d+"),
    "mdflush": (_MD, r"^[\d:]{8} +{pid} +\S+ +md\d+$"),
    "oomkill": (
        _OOM,
        r"^[\d:]{8} Triggered by PID (\d+) .*, OOM kill of PID \1 .*, loadavg: \d",
    ),
    "swapin": (_SWAP, r"^@\[\S+, \d+\]: [1-9]\d*$"),
    "tcpretrans": (
        _RETRANSMISSION,
        r"^[\d:]{8} +\d+ +127\.0\.0\.1:\d+ +127\.0\.0\.1:\d+ +ESTABLISHED",
    ),
    # bpftrace shows the name of the function alone.
    "xfsdist": (_XFS, r"^@us\[xfs_file_\w+\]:\s*\n\["),
}
