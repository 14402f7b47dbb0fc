"""Processes that only look like Python: whatever their memory holds, a walk ends and says why."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
from skips import need_program, requires_root
from tracing_tools import run_usdt

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = requires_root

# The layout is that of 3.11: usdt/cpython/layouts.py.
_SOURCE = r"""
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>
#define AT(block, offset) (*(uint64_t *)((block) + (offset)))
const unsigned long Py_Version = 0x030b0000 + 0x7f0;
char _PyRuntime[4096];
static char interpreter[4096], thread[4096], cframe[64], frame[2][128], code[4096];
static char name[512], file[512], table[4096];
static void text(char *object, const char *characters, uint64_t length)
{
    AT(object, 16) = length;
    AT(object, 32) = 1 << 2 | 1 << 5 | 1 << 6;  /* one byte each, compact, ASCII */
    strcpy(object + 48, characters);
}
int main(int argc, char **argv)
{
    const char *how = argv[1];
    AT(_PyRuntime, 40) = (uint64_t)interpreter;
    AT(interpreter, 16) = (uint64_t)thread;
    AT(thread, 160) = syscall(SYS_gettid);
    AT(thread, 56) = (uint64_t)cframe;
    AT(cframe, 8) = (uint64_t)frame[0];
    for (int i = 0; i < 2; i++) {
        AT(frame[i], 32) = (uint64_t)code;
        AT(frame[i], 56) = (uint64_t)code + 184;
    }
    AT(code, 112) = (uint64_t)file;
    AT(code, 128) = (uint64_t)name;
    AT(code, 136) = (uint64_t)table;
    AT(code, 72) = 5;
    text(name, "work\x1b[31m", 9);
    text(file, "a.py", 4);
    AT(table, 16) = 2;
    memcpy(table + 32, "\x80\x00", 2);
    if (!strcmp(how, "circle of frames"))
        AT(frame[0], 48) = (uint64_t)frame[0];
    if (!strcmp(how, "circle of threads")) {
        AT(thread, 8) = (uint64_t)thread;
        AT(cframe, 8) = 0;
    }
    if (!strcmp(how, "circle of interpreters")) {
        AT(interpreter, 0) = (uint64_t)interpreter;
        AT(cframe, 8) = 0;
    }
    if (!strcmp(how, "wild frame"))
        AT(frame[0], 48) = ~0ULL - 8;
    if (!strcmp(how, "wild code"))
        AT(frame[0], 32) = 0xdead0000beef;
    if (!strcmp(how, "wild names"))
        AT(code, 128) = AT(code, 112) = AT(code, 136) = 1;
    if (!strcmp(how, "endless name"))
        AT(name, 16) = ~0ULL >> 1;
    for (;;) {
        syscall(SYS_getppid);
        usleep(20000);
    }
}
"""

_FRAME = {"symbol": "work\x1b[31m", "file": "a.py", "line": 5, "python": True}
_UNNAMED = {"symbol": None, "file": None, "line": None, "python": True}
_MORE, _BROKEN = {"error": "the stack has more frames"}, {"error": "the next frame cannot be read"}


@pytest.fixture(scope="module")
def imitation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    gcc = need_program("gcc")
    folder = tmp_path_factory.mktemp("imitation")
    (folder / "fake.c").write_text(_SOURCE)
    words = ("-rdynamic", "-w", str(folder / "fake.c"), "-o", str(folder / "fake"))
    subprocess.run([gcc, *words], check=True, timeout=60)
    return folder / "fake"


@pytest.mark.parametrize(
    ("how", "frames"),
    [
        ("whole", [_FRAME]),
        ("circle of frames", [*[_FRAME] * 127, _MORE]),
        ("circle of threads", {"error": "no frames: the thread runs no Python function"}),
        ("circle of interpreters", {"error": "no frames: the thread runs no Python function"}),
        ("wild frame", [_FRAME, _BROKEN]),
        ("wild code", {"error": "no frames: the next frame cannot be read"}),
        ("wild names", {"error": "no frames: the next frame cannot be read"}),
        ("endless name", [_UNNAMED]),
    ],
)
def test_a_walk_through_any_memory_ends(how: str, frames: object, imitation: Path) -> None:
    with subprocess.Popen([imitation, how]) as process:
        try:
            words = ("-p", process.pid, "-n", 2, "--pystack", "syscall:getppid")
            done = run_usdt("trace", "--json", *words)
            text = run_usdt("trace", *words).stdout
        finally:
            process.kill()
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])["args"]["pystack"]
    assert last == frames
    assert "\x1b" not in text
