"""Programs with debug information of every kind, and gdb as a witness of what it says."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from kept_builds import KEPT, compile_in
from skips import need_program

from usdt.btf.types import Composite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from usdt.dwarf.info import DebugInfo

__all__ = (
    "CXX_SOURCE",
    "C_SOURCE",
    "Layout",
    "assembled",
    "compiled",
    "gdb",
    "gdb_layouts",
    "layout",
)

C_SOURCE = r"""
#include <stddef.h>
#include <stdio.h>
enum color { RED, GREEN = 5, BLUE = -1 };
enum wide { SMALL = 1, LARGE = 0x123456789abcULL };
typedef struct node node_t;
struct point { int x, y; };
struct flex { int n; char data[]; };
union num { int i; float f; double d; };
struct __attribute__((packed)) tight { char c; long l; short s; };
struct node {
    node_t *next;
    struct point at;
    unsigned a : 3, b : 5;
    int c : 20;
    long long far : 40;
    enum color color;
    enum wide wide;
    char name[256];
    union num num;
    int (*cb)(struct node *, const char *fmt, ...);
    double m[3][4];
    struct { int p; union { long q; char r[8]; }; } in;
    unsigned char uc;
    _Bool ok;
    const volatile short cv;
    long double ld;
    struct tight tight;
    void *nothing;
};
struct opaque;
typedef int number;
__attribute__((noinline))
int walk(const node_t *n, struct opaque *o, enum color c, const char *s, ...)
{
    printf("%p %p %d %s\n", (void *)n, (void *)o, c, s);
    return n->at.x;
}
static struct flex fl;
__attribute__((noinline)) void nothing(void) { fl.n++; }
__attribute__((noinline))
static number hidden(number x, double y) { return printf("%d %f\n", x, y); }
__attribute__((noinline)) long table(int rows, int (*cell)[4]) { return rows + cell[0][1]; }
int main(int argc, char **argv)
{
    static struct node n;
    int cells[2][4] = {{1}};
    walk(&n, NULL, RED, argv[0]);
    nothing();
    return hidden(argc, 0.5) + (int)table(1, cells) == 0;
}
"""

CXX_SOURCE = r"""
#include <cstdio>
#include <string>
#include <vector>
namespace shop {
enum class Kind : short { Book = -1, Toy = 7 };
struct Price { int whole; unsigned cents; };
class Thing {
public:
    Thing(int id) : id_(id) {}
    virtual ~Thing() = default;
    virtual int weigh(int times) const { return id_ * times; }
    struct Inner { char c; long l; };
    static int counter_;
protected:
    int id_;
    Inner inner_{};
};
int Thing::counter_;
struct Priced { Price price{3, 50}; };
class Toy : public Thing, public Priced {
public:
    Toy(int id, short age) : Thing(id), age_(age), sold_(5) {}
    int weigh(int times) const override;
    bool operator==(const Toy &other) const;
private:
    short age_;
    unsigned sold_ : 3;
    int Toy::*member_ = nullptr;
    int (Toy::*method_)(int) const = nullptr;
};
int Toy::weigh(int times) const { return times + age_; }
bool Toy::operator==(const Toy &other) const { return age_ == other.age_; }
namespace {
struct Hidden { int h; };
__attribute__((noinline)) int use(Hidden h) { return printf("%d", h.h); }
}
__attribute__((noinline)) int put(Toy &toy, Price &&gone, const std::string &name, Kind kind)
{
    return printf("%d %s %d", gone.whole, name.c_str(), (int)kind) + toy.weigh(1) + use({3});
}
}
int main()
{
    shop::Toy toy(1, 2);
    std::vector<int> v{1};
    return shop::put(toy, {1, 2}, "x", shop::Kind::Toy) + toy.weigh(v[0]) + (toy == toy);
}
"""

#: (name, offset in bits, size in bytes or of a bit field in bits) of each member.
Layout = list[tuple[str, int, int]]


def compiled(
    folder: Path, compiler: str, *options: str, source: str = C_SOURCE, kept: Path | None = KEPT
) -> Path:
    """A program of a source, in a folder of its own; a skip that names a compiler that lacks."""
    plus = compiler.endswith("++")
    need_program(compiler, "g++" if compiler == "g++" else "clang" if plus else compiler)
    path = folder / ("program.cc" if plus else "program.c")
    path.write_text(source)
    command = [compiler, "-g", *options, "-w", "-o", "program", path.name]
    done = compile_in(folder, command, check=False, kept=kept)
    if done.returncode and "unrecognized" in done.stderr:
        pytest.skip(f"this {compiler} lacks one of {' '.join(options)}")
    assert not done.returncode, done.stderr
    return folder / "program"


def assembled(folder: Path, abbreviations: str, entries: str, *, version: int = 4) -> Path:
    """A shared object with debug information written by hand, in the assembler's words."""
    need_program("gcc")
    (folder / "x.s").write_text(
        ".text\n.globl begin\nbegin:\n nop\n"
        f'.section .debug_abbrev,"",@progbits\n{abbreviations}\n .byte 0\n'
        '.section .debug_info,"",@progbits\nunit:\n .long end - start\nstart:\n'
        f" .value {version}\n .long 0\n .byte 8\n{entries}\nend:\n"
    )
    command = ["gcc", "-shared", "-nostdlib", "-o", "x.so", "x.s"]
    compile_in(folder, command)
    return folder / "x.so"


def gdb(program: Path, *commands: str) -> str:
    """What gdb says of a program that does not run."""
    need_program("gdb")
    words = ["gdb", "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set width 0"]
    words += [word for command in commands for word in ("-ex", command)]
    home = {"HOME": "/nonexistent", "LC_ALL": "C", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [*words, str(program)], capture_output=True, text=True, timeout=120, check=True, env=home
    )
    return done.stdout


_ROW = re.compile(
    r"^/\*\s*(?:(?P<offset>\d+)(?::\s*(?P<bit>\d+))?)?\s*\|?\s*(?P<size>\d+)\s*\*/"
    r" {4}(?P<text> *.*)$"
)


def gdb_layouts(program: Path, names: Sequence[str]) -> dict[str, tuple[int, Layout]]:
    """Size and members of types by ``ptype /o``, without those of structures in them."""
    commands = [f"{word} {name}" for name in names for word in ("echo @", "ptype/o")]
    parts = gdb(program, *commands).split("@")[1:]
    found = {}
    for name, part in zip(names, parts, strict=True):
        sizes = re.findall(r"total size \(bytes\): +(\d+)", part)
        found[name] = int(sizes[-1]), [*_members(part.splitlines())]
    return found


def layout(info: DebugInfo, name: str) -> Layout:
    """What we say, as :func:`gdb_layouts` puts it."""
    found = info.btf.resolve(info.type_id(name))
    assert isinstance(found, Composite)
    bases = info.bases.get(found.id, {})
    return [
        (one.name, one.bit_offset, one.bitfield_size or info.btf.size_of(one.type_id))
        for index, one in enumerate(found.members)
        if index not in bases and not one.name.startswith("_vptr")
    ]


def _members(lines: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    pending = None  # a structure that is written out: its name follows
    for line in lines:
        match = _ROW.match(line)
        closing = re.match(r"^ {31}\}(?: (\w+)(?:\[\d+\])*)?;", line)
        if closing and pending is not None:
            yield closing[1] or "", *pending
            pending = None
        # What is further right is of a structure within.
        if match is None or match["offset"] is None or match["text"].startswith("    "):
            continue
        width = re.search(r": (\d+);", match["text"])
        place = 8 * int(match["offset"]) + int(match["bit"] or 0)
        size = int(width[1]) if width else int(match["size"])
        if match["text"].rstrip().endswith("{"):
            pending = place, size
        else:
            yield _declared(match["text"]), place, size


def _declared(text: str) -> str:
    pointer = re.search(r"\((?:[\w:]+::)?\*(?:const )?(\w+)\)", text)
    if pointer:
        return pointer[1]
    plain = re.search(r"(\S*?)(?:\[\w*\])*(?: : \d+)?;", text.rstrip())
    return re.split(r"[*&]", plain[1])[-1] if plain else ""
