"""Programs that pass objects of the kernel to its helpers: sockets and paths."""

from __future__ import annotations

import struct
import sys
import time
from typing import TYPE_CHECKING

import pytest

from usdt.base.errors import LanguageError
from usdt.base.machine import KERNEL_MACHINE
from usdt.bpf import features

if TYPE_CHECKING:
    from pathlib import Path

    from program_runs import Run

_SOCKETS = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
client = socket.socket()
client.connect(server.getsockname())
cookie = client.getsockopt(socket.SOL_SOCKET, 57, 8)  # SO_COOKIE
open(sys.argv[1], "w").write(str(int.from_bytes(cookie, sys.byteorder)))
"""


_STACK_POINTER = "r15" if KERNEL_MACHINE == "s390x" else "sp"
_PACKETS = """
import socket
to = socket.socket(type=socket.SOCK_DGRAM)
to.bind(("127.0.0.1", 0))
for size in (10, 3000):
    socket.socket(type=socket.SOCK_DGRAM).sendto(b"x" * size, to.getsockname())
"""


@pytest.fixture
def fentry() -> None:
    """Skip where the kernel's functions cannot be traced with their types."""
    if not features.have_fentry():
        pytest.skip("this kernel lacks fentry")


@pytest.mark.usefixtures("fentry")
def test_cookies_of_sockets(run: Run, tmp_path: Path) -> None:
    (tmp_path / "connects.py").write_text(_SOCKETS)
    text = (
        "fentry:inet_stream_connect /pid == cpid/ { @m = socket_cookie(args.sock.sk); }"
        " fentry:tcp_connect /pid == cpid/ {"
        " $c = socket_cookie(args.sk); for ($i : 0..1) { print((@m == $c, $c)); }"
        " clear(@m); exit(); }"
    )
    command = f"{sys.executable} {tmp_path}/connects.py {tmp_path}/cookie"
    printed = run(text, command=command)
    assert printed == f"(true, {(tmp_path / 'cookie').read_text()})\n"


@pytest.mark.usefixtures("fentry")
def test_paths_of_files(run: Run, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("")
    text = (
        "config = { max_strlen = 400 }"
        f' fentry:security_file_open /pid == cpid && path(args.file.f_path) == "{known}"/ {{'
        " @m[path(args.file.f_path)] = path(args.file.f_path, 3);"
        f' $cut = @m["{known}"]; print((has_key(@m, "{known}"), $cut == "wn" || $cut == "",'
        " strlen(path(args.file.f_path)))); clear(@m); exit(); }"
        " fexit:vfs_getattr /pid == cpid/ { $p = path(args.path); }"
    )
    command = f"{sys.executable} -c \"open('{known}')\""
    assert run(text, command=command) == f"(true, true, {len(str(known))})\n"


@pytest.mark.parametrize("kind", ["kprobe", "kretprobe"])
def test_registers_of_functions_of_the_kernel(run: Run, kind: str) -> None:
    if not features.have_kprobes():
        pytest.skip("this kernel lacks the kprobe PMU")
    text = f'{kind}:vfs_open /pid == cpid/ {{ print(reg("{_STACK_POINTER}") >> 63 == 1); exit(); }}'
    assert run(text, command="cat /dev/null") == "true\n"


def test_packets_in_a_file(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sends.py").write_text(_PACKETS)
    file = tmp_path / "sent.pcap"
    text = (
        "config = { max_strlen = 200 } t:net:net_dev_queue /pid == cpid/ {"
        " $skb = (struct sk_buff *)args.skbaddr;"
        f' $result = skboutput("{file}", $skb, $skb.len, 14); print($result);'
        f' skboutput("{tmp_path}", args.skbaddr, 10, 0); }}'
    )
    began = int(time.time())
    assert run(text, command=f"{sys.executable} {tmp_path}/sends.py") == "0\n0\n"
    assert f"{tmp_path} cannot be written (Is a directory)" in capsys.readouterr().err
    data = file.read_bytes()
    assert struct.unpack_from("=IHH12xI", data) == (0xA1B2C3D4, 2, 4, 101)
    at = 24
    for size, known in ((10, 38), (3000, 201)):
        seconds, _, there, whole = struct.unpack_from("=4I", data, at)
        assert began <= seconds <= time.time()
        assert (there, whole) == (known, size + 28)
        packet = data[at + 16 : at + 16 + there]
        assert packet[12:20] == bytes((127, 0, 0, 1)) * 2
        assert packet[28:] == b"x" * (known - 28)
        at += 16 + there
    assert at == len(data)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ('skboutput("x", curtask, 1, 0)', "takes a struct sk_buff *, not struct task_struct *"),
        ("skboutput(1, curtask, 1, 0)", "the file of skboutput(): expected a constant string"),
        ('skboutput("x", 0)', "skboutput() takes 4 arguments, 2 given"),
        (
            "socket_cookie(curtask)",
            "the kernel knows the types of arguments in fentry, fexit and iter",
        ),
        ("path(curtask)", "the kernel knows the types of arguments in fentry, fexit and iter"),
    ],
)
def test_what_is_refused(run: Run, call: str, reason: str) -> None:
    with pytest.raises(LanguageError) as caught:
        run(f"BEGIN {{ print({call}); }}")
    assert reason in str(caught.value)


@pytest.mark.usefixtures("fentry")
@pytest.mark.parametrize(
    ("function", "call", "reason"),
    [
        ("tcp_connect", "socket_cookie((struct sock *)args.sk)", "takes an argument of the"),
        ("tcp_connect", "socket_cookie(1)", "takes an argument of the function"),
        ("filp_close", "socket_cookie(args.filp)", "takes a socket, not struct file *"),
        ("filp_close", "path(args.filp)", "path() takes a struct path, not struct file *"),
        ("filp_close", "path(args.filp.f_path, 0)", "path() has 1 to 1025 bytes"),
        ("vfs_open", "path(args.path)", "the kernel allows it in dentry_open, filp_close, "),
    ],
)
def test_what_leads_to_no_object(run: Run, function: str, call: str, reason: str) -> None:
    with pytest.raises(LanguageError) as caught:
        run(f"fentry:{function} {{ print({call}); }}")
    assert reason in str(caught.value)
