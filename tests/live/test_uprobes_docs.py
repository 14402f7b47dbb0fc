"""The examples of docs/uprobes.md: what is printed is what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from dwarf_programs import program
from symbol_programs import compiled
from tracing_tools import run_usdt

from usdt.base.machine import PROCESS_MACHINE

pytestmark = pytest.mark.usefixtures("ringbuf")

_x86_64 = pytest.mark.skipif(PROCESS_MACHINE != "x86_64", reason="the page shows x86-64")

DOCS = Path(__file__).resolve().parents[2] / "docs" / "uprobes.md"


def _examples() -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for line in DOCS.read_text().splitlines():
        if line.startswith("    $ "):
            found.append((line.removeprefix("    $ "), []))
        elif found and line.startswith("    "):
            found[-1][1].append(line.removeprefix("    "))
        elif not line.startswith("    ") and found and line:
            found.append(("", []))
    return [one for one in found if one[0]]


def _alike(line: str) -> str:
    # Addresses, sizes, folders and what stands before the probe's name are the machine's.
    line = re.sub(r"(address|offset) 0x[0-9a-f]+", r"\1", line)
    line = re.sub(r"0x[0-9a-f]{9,}", "ADDRESS", line)
    line = re.sub(r"\d+ bytes", "bytes", re.sub(r"\S*/(values|objects|server|basket)", r"\1", line))
    return re.sub(r" +", " ", re.sub(r"^.*?(?=uprobe:)", "", line))


_SERVER = """
struct limits { int clients; const char *name; } limits = {100, "default"};
struct request { int id; } *queue;
static int open_requests;
__attribute__((noinline)) int handle(struct request *r) { return open_requests += r->id > 0; }
int main(void) {
    struct request one = {1}, two = {2};
    handle(&one);
    queue = &two;
    return handle(&two) - 2;
}
"""


_BASKET = """
struct item { const char *name; int price; };

static int reduced(int price)
{
    int off = price / 10;
    return price - off;
}

__attribute__((noinline)) int sum(const struct item *items, int count)
{
    int total = 0;
    for (int i = 0; i < count; i++) {
        const struct item *item = &items[i];
        total += reduced(item->price);
    }
    return total;
}

int main(void)
{
    struct item items[] = {{"apple", 30}, {"pear", 55}};
    return sum(items, 2) + reduced(100) - 167;
}
""".removeprefix("\n")


def _program_of(command: str, folder: Path) -> Path:
    for name, source in (("server", _SERVER), ("basket", _BASKET)):
        if f"./{name}" in command:
            return compiled(folder, source, "-g", "-O1", name=name)
    return program("gccO2v5", "objects" if "objects" in command else "values")


@_x86_64
@pytest.mark.parametrize(("command", "wanted"), _examples())
def test_the_examples_of_the_page_are_what_is_seen(
    command: str, wanted: list[str], tmp_path: Path
) -> None:
    path = _program_of(command, tmp_path)
    words = shlex.split(command.removeprefix("usdt ").replace("./", f"{path.parent}/"))
    done = run_usdt(*words)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith('{"function"')]
    assert [_alike(line) for line in lines] == [_alike(line) for line in wanted if line]
