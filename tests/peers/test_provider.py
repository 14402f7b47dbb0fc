"""Probes of a Python program, seen by Debian's bpftrace and bcc: the values are the same.

Neither reads floats (``8f@``) in Debian 12, so the probe has integers and a string.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from bccpeer import environment
from providing import providing
from skips import need_program, requires_root
from tracing_tools import until

from usdt.bcc import kernel_headers

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = requires_root

_BCC = r"""
import json, sys
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
event = program["events"].pop()
print(event.number, event.text.decode(), event.last)
"""


@pytest.fixture
def bcc(tmp_path: Path) -> list[str]:
    script = tmp_path / "bcc_usdt.py"
    script.write_text(_BCC)
    return [sys.executable, str(script), json.dumps(kernel_headers()[1])]


def test_bpftrace_sees_the_same_values(tmp_path: Path) -> None:
    need_program("bpftrace")
    path, output = tmp_path / "shop.so", tmp_path / "output"
    text = 'printf("%d %s %d\\n", arg0, str(arg1), arg2);'
    with providing("plain", path=path) as program, output.open("w") as file:
        words = [
            "bpftrace",
            "-B",
            "line",
            "-p",
            str(program.pid),
            "-e",
            f"usdt:{path}:shop:plain {{ {text} }}",
        ]
        with subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT) as peer:

            def seen() -> bool:
                program.order()  # again and again: it counts itself before it looks
                return "-3 cart -5\n" in output.read_text()

            try:
                until(seen, f"the values in {output}", every=0.1)
            finally:
                peer.kill()


def test_bcc_sees_the_same_values_in_a_memfd(bcc: list[str]) -> None:
    words = environment()
    source, _ = kernel_headers()
    if source:
        words["BCC_KERNEL_SOURCE"] = source
    with (
        providing("plain") as program,
        subprocess.Popen(
            [*bcc, str(program.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=words,
        ) as peer,
    ):
        assert peer.stdout is not None
        try:
            assert peer.stdout.readline() == "ready\n", peer.stderr and peer.stderr.read()
            program.order()
            out, _ = peer.communicate("\n", timeout=30)
        finally:
            peer.kill()
    assert out == "-3 cart -5\n"
