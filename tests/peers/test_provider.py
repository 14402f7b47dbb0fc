"""Probes of a Python program, seen by Debian's bpftrace and bcc: the values are the same.

Neither reads floats (``8f@``) in Debian 12, so the probe has integers and a string.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from bccpeer import environment
from providing import providing
from skips import need_program, requires_root
from tracing_tools import until

import usdt
from usdt.bcc import kernel_headers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = requires_root

_BCC = r"""
import json, sys, time
from bcc import BPF, USDT
usdt = USDT(pid=int(sys.argv[2]))
usdt.enable_probe("shop:plain", "on_hit")
program = BPF(usdt_contexts=[usdt], cflags=json.loads(sys.argv[1]), text=r'''
#include <uapi/linux/ptrace.h>
struct event { s64 number; char text[16]; s32 last; };
BPF_QUEUE(events, struct event, 16);
int on_hit(struct pt_regs *ctx)
{
    struct event event = {};
    u64 text = 0;
    bpf_usdt_readarg(1, ctx, &event.number);
    bpf_usdt_readarg(2, ctx, &text);
    bpf_usdt_readarg(3, ctx, &event.last);
    bpf_probe_read_user_str(event.text, sizeof event.text, (void *)text);
    events.push(&event, 0);
    return 0;
}
''')
print("ready", flush=True)
input()
while True:  # the program may fire a little later
    try:
        event = program["events"].pop()
        break
    except KeyError:
        time.sleep(0.01)
print(event.number, event.text.decode(), event.last)
"""


@pytest.fixture
def bcc(tmp_path: Path) -> list[str]:
    script = tmp_path / "bcc_usdt.py"
    script.write_text(_BCC)
    return [sys.executable, str(script), json.dumps(kernel_headers()[1])]


@contextlib.contextmanager
def bpftrace(pid: int, path: Path, output: Path) -> Iterator[None]:
    """Debian's bpftrace on the probe, its lines in a file."""
    need_program("bpftrace")
    text = 'printf("%d %s %d\\n", arg0, str(arg1), arg2);'
    words = ["bpftrace", "-B", "line", "-p", str(pid)]
    words += ["-e", f"usdt:{path}:shop:plain {{ {text} }}"]
    with (
        output.open("w") as file,
        subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT) as peer,
    ):
        try:
            yield
        finally:
            peer.kill()


@contextlib.contextmanager
def bcc_listening(words: list[str], pid: int) -> Iterator[subprocess.Popen[str]]:
    """Debian's bcc on the probe; it prints the first hit after a line on its input."""
    variables = environment()
    source, _ = kernel_headers()
    if source:
        variables["BCC_KERNEL_SOURCE"] = source
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([*words, str(pid)], text=True, env=variables, **pipes) as peer:
        assert peer.stdout is not None
        try:
            assert peer.stdout.readline() == "ready\n", peer.stderr and peer.stderr.read()
            yield peer
        finally:
            peer.kill()


def test_bpftrace_sees_the_same_values(tmp_path: Path) -> None:
    path, output = tmp_path / "shop.so", tmp_path / "output"
    with providing("plain", path=path) as program, bpftrace(program.pid, path, output):

        def seen() -> bool:
            program.order()  # again and again: it counts itself before it looks
            return "-3 cart -5\n" in output.read_text()

        until(seen, f"the values in {output}", every=0.1)


def test_bcc_sees_the_same_values_in_a_memfd(bcc: list[str]) -> None:
    with providing("plain") as program, bcc_listening(bcc, program.pid) as peer:
        program.order()
        out, _ = peer.communicate("\n", timeout=100)
    assert out == "-3 cart -5\n"


def test_two_tracers_at_once_see_the_same(tmp_path: Path) -> None:
    """bcc cannot be the third: without the kernel's reference counter it has the place alone."""
    path, output = tmp_path / "shop.so", tmp_path / "output"
    probe = "shop:plain(arg0, str(arg1), arg2)"
    with (
        providing("plain", path=path) as program,
        bpftrace(program.pid, path, output),
        usdt.attach(probe, pid=program.pid) as events,
    ):
        found: list[usdt.Event] = []

        def seen() -> bool:
            program.order()
            found.extend(events.poll(0.1))
            return "-3 cart -5\n" in output.read_text()

        until(seen, f"the values in {output}", every=0.1)
    assert {(*event.args.values(),) for event in found} == {(-3, "cart", -5)}


def test_a_place_that_bcc_has_is_told(bcc: list[str]) -> None:
    with providing("plain") as program, bcc_listening(bcc, program.pid) as peer:
        with pytest.raises(usdt.TracingError, match="another tracer may have attached here"):
            usdt.attach("shop:plain(arg0)", pid=program.pid)
        program.order()
        out, _ = peer.communicate("\n", timeout=100)
    assert out == "-3 cart -5\n"
