"""Programs of bcc on USDT probes, compiled and loaded by bcc, attached by us."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bccpeer import environment
from fixtures import build, start
from house import ROOT

from usdt import bcc
from usdt.base.errors import TargetError, TracingError

COOKIE = 0xCAFEDEADBEEFFEED

_SCRIPT = r"""
import json, subprocess, sys
from usdt.bcc import attach, load
path, pid, provider, name, cookie = sys.argv[1:]
program = load('''
struct event { u64 cookie; s32 count; s32 results[13]; s32 sizes[13]; s64 values[13]; };
BPF_QUEUE(events, struct event, 1024);
BPF_ARRAY(scratch, struct event, 1);
int on_hit(struct pt_regs *ctx)
{
    int zero = 0;
    struct event *event = scratch.lookup(&zero);
    if (!event)
        return 0;
    event->cookie = bpf_usdt_cookie(ctx);
    event->count = bpf_usdt_arg_cnt(ctx);
#pragma unroll
    for (int index = 0; index < 13; index++) {
        long value;
        event->results[index] = bpf_usdt_arg(ctx, index, &value);
        event->sizes[index] = bpf_usdt_arg_size(ctx, index);
        event->values[index] = value;
    }
    events.push(event, 0);
    return 0;
}
''')
options = {"pid": int(pid), "cookie": int(cookie)}
with attach(program, "on_hit", path, provider, name, **options) as attachment:
    print(json.dumps([attachment.sites, attachment.via]), flush=True)
    input()
    found = []
    while True:
        try:
            event = program["events"].pop()
        except KeyError:
            break
        columns = map(list, (event.results, event.sizes, event.values))
        found.append([event.cookie, event.count, *columns])
    print(json.dumps(found), flush=True)
"""


@pytest.mark.root
@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("args", "count12"),
        ("args", "count0"),
        ("ints", "i16"),
        ("sema_each", "guarded"),
        ("sib", "displaced"),
        ("globals", "members"),
    ],
)
def test_arguments_cookies_and_semaphores(program: str, name: str, tmp_path: Path) -> None:
    path = Path(shutil.copy(build("default", program), tmp_path))
    with start(path, "-w") as running:
        running.wait_ready()
        words: list[Any] = [sys.executable, "-c", _SCRIPT]
        words += [path, running.pid, program, name, COOKIE]
        with subprocess.Popen(
            list(map(str, words)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        ) as tracer:
            assert tracer.stdin is not None
            assert tracer.stdout is not None
            sites, _ = json.loads(tracer.stdout.readline())
            running.fire()
            tracer.stdin.write("\n")
            tracer.stdin.flush()
            events = json.loads(tracer.stdout.readline())
        fired = [hit["args"] for hit in running.hits if hit["probe"] == f"{program}:{name}"]
        assert len(fired) == len(events) >= sites
        for args, (cookie, count, results, sizes, values) in zip(fired, events, strict=True):
            assert (cookie, count) == (COOKIE, len(args))
            assert results == [0] * count + [-2] * (13 - count)
            assert set(sizes[:count]) <= {1, 2, 4, 8}
            assert sizes[count:] == [-2] * (13 - count)
            assert values[:count] == args


@pytest.mark.root
def test_the_example_shows_collections() -> None:
    python = Path("/usr/bin/python3").resolve()
    if not python.exists():
        pytest.skip("needs the program /usr/bin/python3: apt-get install python3")
    loop = "import gc, time\nwhile True: gc.collect(); time.sleep(0.05)"
    words = [sys.executable, "examples/bcc_usdt.py", "-d", "300"]
    pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([python, "-c", loop]) as traced:
        try:
            with subprocess.Popen(
                [*words, "-p", str(traced.pid)], cwd=ROOT, env=environment(), text=True, **pipes
            ) as tracer:
                assert tracer.stdout is not None
                try:
                    lines = [*itertools.islice(tracer.stdout, 6)]
                    tracer.send_signal(signal.SIGINT)  # while it shows the sixth
                    _, errors = tracer.communicate(timeout=100)
                finally:
                    tracer.kill()
        finally:
            traced.kill()
    assert tracer.returncode == 0, errors
    assert len(lines) == 6, errors
    assert all(line.split()[:3] == [str(traced.pid), "generation", "2"] for line in lines)


def test_missing_headers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BCC_KERNEL_SOURCE", raising=False)
    monkeypatch.setattr("usdt.bcc._debian_headers", list)
    monkeypatch.setattr("os.path.isdir", lambda _: False)
    monkeypatch.setattr("os.path.exists", lambda _: False)
    with pytest.raises(TracingError, match=f"install linux-headers-{os.uname().release} "):
        bcc.kernel_headers()


def test_headers_that_were_named_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCC_KERNEL_SOURCE", "/somewhere")
    assert bcc.kernel_headers() == ("", [])


def test_a_missing_bcc_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bcc", None)
    with pytest.raises(TracingError, match="apt-get install python3-bpfcc"):
        bcc.load("")


class _Library:
    @staticmethod
    def bpf_num_functions(_module: object) -> int:
        return 1

    @staticmethod
    def bpf_function_name(_module: object, _index: int) -> bytes:
        return b"on_hit"


class _Object:
    funcs: dict[bytes, int] = {}  # noqa: RUF012 - as bcc has it
    module = None
    lib = _Library


def test_a_function_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bcc", _Object)  # type: ignore[arg-type]
    with pytest.raises(TargetError, match="no function on_hitt; it has on_hit"):
        bcc.attach(_Object(), "on_hitt", "/bin/true", "a", "b")
