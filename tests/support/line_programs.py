"""Programs with inlined functions, and what binutils say of their addresses; for tests of lines."""

from __future__ import annotations

import random
import re
import subprocess
from typing import TYPE_CHECKING

from kept_builds import compile_in
from skips import need_program

from usdt.elf.file import ElfFile
from usdt.symbolize import FileSymbols

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from usdt.dwarf.lines.source_lines import SourceLines, SourceLocation

__all__ = ("CXX", "C", "Chain", "chains", "code_addresses", "differences", "made")

Chain = list[tuple[str, str]]  # function, FILE:LINE; innermost first

C = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static inline __attribute__((always_inline)) int thrice(int x) { return x * 3 + (x >> 2); }
static inline __attribute__((always_inline)) int mixed(int x, int y)
{
    if (x > y)
        return thrice(x) - y;
    for (int i = 0; i < y; i++)
        x += thrice(x ^ i);
    return x;
}
__attribute__((noinline)) int outer(int x)
{
    int y = mixed(x, 7);
    char buffer[64];
    snprintf(buffer, sizeof buffer, "%d", y);
    return (int)strlen(buffer) + mixed(y, x);
}
__attribute__((noinline, cold)) void unlikely(int x) { if (x > 100) abort(); }
static int compare(const void *a, const void *b)
{
    return mixed(*(const int *)a, *(const int *)b) - thrice(*(const int *)b);
}
int main(int argc, char **argv)
{
    int many[8] = {5, 3, argc, 1};
    if (argc > 2)
        unlikely(argc);
    qsort(many, 8, sizeof *many, compare);
    return outer(many[0] + (int)strlen(argv[0])) & 1;
}
"""

CXX = r"""
#include <algorithm>
#include <map>
#include <string>
#include <vector>
namespace shapes {
struct Shape { virtual ~Shape() = default; virtual double area() const = 0; };
template <typename T> struct Square : Shape {
    T side;
    explicit Square(T s) : side(s) {}
    double area() const override { return static_cast<double>(side) * side; }
};
namespace { double scale(double x) { return x * 1.5 + 2; } }
inline double total(const std::vector<Shape *> &all)
{
    double sum = 0;
    std::for_each(all.begin(), all.end(), [&](const Shape *s) { sum += scale(s->area()); });
    return sum;
}
}
int main(int argc, char **argv)
{
    std::map<std::string, int> words;
    for (int i = 0; i < argc; i++)
        words[std::string(argv[i])] += i;
    std::vector<shapes::Shape *> all;
    for (auto &pair : words)
        all.push_back(new shapes::Square<int>(pair.second));
    std::sort(all.begin(), all.end(), [](auto *a, auto *b) { return a->area() < b->area(); });
    return static_cast<int>(shapes::total(all)) & 1;
}
"""


def made(folder: Path, source: str, compiler: str, *options: str, name: str = "program") -> Path:
    """A program of C, or of C++ if the compiler's name says so."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.{'cc' if '++' in compiler else 'c'}"
    path.write_text(source)
    compile_in(folder, [need_program(compiler), *options, "-w", "-o", name, path])
    return folder / name


def code_addresses(path: Path | str, number: int, seed: int = 1) -> list[int]:
    """Random link-time addresses of a file's code."""
    rng = random.Random(seed)
    with ElfFile(str(path)) as elf:
        code = [one for one in elf.sections if one.flags & 4 and one.size > 16]
    parts = rng.choices(code, [one.size for one in code], k=number)
    return [one.address + rng.randrange(one.size) for one in parts]


def chains(
    path: Path | str,
    addresses: Sequence[int],
    program: str = "addr2line",
    environment: dict[str, str] | None = None,
) -> list[Chain]:
    """What addr2line says of each address."""
    done = subprocess.run(
        [
            need_program(program, "llvm" if "llvm" in program else "binutils"),
            "-a",
            "-f",
            "-i",
            "-e",
            str(path),
        ],
        input="\n".join(map(hex, addresses)),
        capture_output=True,
        check=True,
        text=True,
        timeout=120,
        env=environment,
    )
    found: list[list[str]] = []
    for line in done.stdout.splitlines():
        if line.startswith("0x"):
            found.append([])
        else:
            found[-1].append(re.sub(r":0$", ":?", line.partition(" (discriminator")[0]))
    return [list(zip(lines[::2], lines[1::2], strict=True)) for lines in found]


def _ours(places: Sequence[SourceLocation]) -> Chain:
    return [(one.function or "??", f"{one.file or '??'}:{one.line or '?'}") for one in places]


def _same(ours: Chain, theirs: Chain, symbol: str, unit: str) -> bool:
    # binutils 2.40 have three ways of their own, in which gdb and LLVM are with us:
    # a function's name may be its symbol's, also for what was inlined into it, and the nearest
    # symbol's where no function is (padding);
    # of a unit compiled in a relative folder that is written twice;
    # of some addresses the unit's own file is given with the line of another.
    for (name, place), (their_name, their_place) in zip(ours, theirs, strict=True):
        where = re.sub(r"^(\./[^/]+)/\1/", r"\1/", their_place)
        if (
            name not in ("??", their_name)
            and their_name.partition("@")[0].removeprefix("__GI_") != symbol
        ):
            return False
        if place != where and (
            place.rpartition(":")[2] != where.rpartition(":")[2]
            or where.rpartition(":")[0].rpartition("/")[2] != unit.rpartition("/")[2]
        ):
            return False
    return True


def differences(
    path: Path | str,
    lines: SourceLines,
    addresses: Sequence[int],
    program: str = "addr2line",
    environment: dict[str, str] | None = None,
) -> list[tuple[str, Chain, Chain]]:
    """Addresses of which we and addr2line say different things: address, ours, theirs."""
    found = []
    with FileSymbols(str(path)) as symbols:
        said = chains(path, addresses, program, environment)
        for address, theirs in zip(addresses, said, strict=True):
            ours = _ours(lines.at(address))
            number = lines._units.find(address)
            if number is None:  # addr2line looks at lines that belong to no unit, too
                continue
            unit = lines._unit(number)
            owner = unit.unit.skeleton or unit.unit
            name = owner.text(owner.root, 3)  # DW_AT_name
            symbol = symbols.find(address)
            known = "" if symbol is None else symbol.name
            if not ours and theirs[0][1].startswith("??"):
                continue
            if len(ours) != len(theirs) or not _same(ours, theirs, known, name):
                found.append((hex(address), ours, theirs))
    return found
