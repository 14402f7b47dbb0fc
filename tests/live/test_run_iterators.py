"""Iterators in programs of ``usdt run``: tasks, their files and their mappings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from usdt.base.errors import LanguageError, TracingError
from usdt.engine.cli.programs.listing import list_probes
from usdt.engine.programs.iterators import iterator_names

if TYPE_CHECKING:
    from program_runs import Run

pytestmark = pytest.mark.root


def _need(name: str) -> None:
    if name not in iterator_names():
        pytest.skip(f"this kernel has no iterator {name!r}")


def test_tasks(run: Run) -> None:
    _need("task")
    with subprocess.Popen([sys.executable, "-c", _THREADS], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        shown = 'printf("%s %d\\n", ctx->task->comm, ctx->task->pid != ctx->task->tgid);'
        # In a PID namespace the numbers of struct task_struct are others.
        own = f"ctx->task->real_parent->tgid == {_kernels_pid()}"
        text = f'it:task /{own} && ctx->task->comm == "looked at"/ {{ {shown} }}'
        assert run(text) == "looked at 0\nlooked at 1\n"
        process.communicate(b"\n")


_THREADS = """
import threading
open("/proc/self/comm", "w").write("looked at")
threading.Thread(target=input).start()
print(flush=True)
"""


def _kernels_pid() -> int:
    # The number of this process in the initial namespace.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("NStgid:")[2].split()[0])


def test_files_with_their_paths(run: Run, tmp_path: object) -> None:
    _need("task_file")
    opened = os.open(f"{tmp_path}/opened", os.O_CREAT | os.O_RDWR)
    try:
        shown = 'printf("%d %s\\n", ctx->fd, path(ctx->file->f_path));'
        text = f"iter:task_file /ctx->fd == {opened} && ctx->task->tgid == {_kernels_pid()}/"
        assert run(f"{text} {{ {shown} }}") == f"{opened} {tmp_path}/opened\n"
    finally:
        os.close(opened)


def test_mappings_and_other_probes(run: Run) -> None:
    _need("task_vma")
    sizes = "@sum = sum(ctx->vma->vm_end - ctx->vma->vm_start); @n = count();"
    text = (
        f"BEGIN {{ print(1); }} iter:task_vma /ctx->task->tgid == {_kernels_pid()}/ {{ {sizes} }}"
        " END { print((@sum > 4096, @n > 9)); clear(@sum); clear(@n); }"
    )
    assert run(text) == "1\n(true, true)\n@n: 0\n"


def test_one_process_is_visited(run: Run) -> None:
    _need("task")
    with subprocess.Popen(["sleep", "60"]) as process:
        text = "iter:task { print(ctx->task->comm); for ($i : 0..2) { @[ctx->task->comm]++; } }"
        try:
            assert run(text, pids=(process.pid,)) == "sleep\n@[sleep]: 2\n"
        finally:
            process.kill()


def test_more_objects_than_the_buffer_has_room_for(run: Run) -> None:
    _need("task_file")
    copies = [os.dup(0) for _ in range(800)]
    try:  # 9 MiB
        values = ", ".join(["str(ctx->task->comm)"] * 12)
        text = f"iter:task_file /ctx->task->tgid == {_kernels_pid()}/ {{ print(({values})); }}"
        printed = run(text).splitlines()
    finally:
        for copy in copies:
            os.close(copy)
    assert len(printed) >= 800
    assert len({*printed}) == 1


_REFUSED = {
    "iter:task:pinned { }": r"iter:task:pinned: iterators cannot be pinned",
    "iter:tsk { }": r"this kernel has no iterator 'tsk'; did you mean iter:task\?",
    "iter { }": r"iter:: this kernel has no iterator ''",
    "iter:task { print(kstack); }": r"1:19: iter:task has no stack",
    "iter:task { print(ustack(3)); }": r"1:19: iter:task has no stack",
    "iter:task { print(args); }": r"iter:task has no arguments with names",
    "iter:task { print(ctx->file); }": r"has no member 'file'",
    "iter:task { print(path(curtask->mm)); }": r"path\(\) takes what members of ctx lead to",
    "BEGIN { print(ctx); }": r"ctx: begin has no context",
}


@pytest.mark.parametrize("text", _REFUSED)
def test_what_iterators_have_not_is_refused(run: Run, text: str) -> None:
    _need("task")
    with pytest.raises(LanguageError, match=_REFUSED[text]):
        run(text)


def test_an_iterator_that_wants_a_map(run: Run) -> None:
    _need("bpf_map_elem")
    with pytest.raises(TracingError, match="iter:bpf_map_elem: the kernel wants a map"):
        run("iter:bpf_map_elem { }")


def test_iterators_are_listed() -> None:
    _need("task_file")
    assert list_probes(None, ["iter:task_file"], (), verbose=True) == [
        "iter:task_file",
        "    struct task_struct * task",
        "    u32 fd",
        "    struct file * file",
    ]
    assert {"iter:task", "iter:bpf_map"} <= {*list_probes(None, ["it:*"], (), verbose=False)}
