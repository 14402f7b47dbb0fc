"""Programs that print their local variables at marked lines; for tests of places in functions.

A line that prints ``MARK a=1 b=2`` is the place ``source.c:LINE(a, b)``: what is traced there
equals what is printed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kept_builds import compile_in
from skips import need_program

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("CXX", "INLINED", "RUST", "C", "Mark", "made", "marks")

#: Nested scopes, shadowed names, structures, inlined functions, several copies of one line.
C = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum color { RED, GREEN = 5 };
struct point { int x; short y; char tag[8]; };
struct request { const char *path; long size; struct point at; enum color color; };
static volatile int step = 3;
static inline __attribute__((always_inline)) long area(int w, struct request *r)
{
    long whole = (long)w * r->size;
    printf("MARK w=%d whole=%ld r->path=\"%s\"\n", w, whole, r->path); // MARK
    return whole + step;
}
__attribute__((noinline)) long handle(struct request *r, int n, unsigned char flag)
{
    long total = n + step;
    for (int i = 0; i < n; i++) {
        long inner = total * 2 + i;
        int n = i * 7 + step;
        printf("MARK i=%d inner=%ld n=%d total=%ld\n", i, inner, n, total); // MARK
        total += inner % 5;
        if (n & 1) {
            char text[16];
            snprintf(text, sizeof text, "t%d", n);
            printf("MARK text=\"%s\" r->at.x=%d\n", text, r->at.x); // MARK
            total += strlen(text);
        }
        total += area(i + 1, r);
    }
    printf("MARK total=%ld flag=%d\n", total, flag); // MARK
    return total;
}
int main(int argc, char **argv)
{
    struct request r = {"/index", 40 + argc, {-5, 6, "corner"}, GREEN};
    struct request second = r;
    second.path = "/second";
    long sum = handle(&r, 4, 200);
    sum += area(argc + 8, &second);
    printf("MARK sum=%ld argc=%d\n", sum, argc); // MARK
    return sum == 0;
}
"""

CXX = r"""
#include <cstdio>
#include <string>
#include <vector>
namespace shop {
struct Item { std::string name; int price; };
struct Cart {
    std::vector<Item> items;
    int discount = 3;
    template <typename T> T add(const std::string &name, T price)
    {
        T reduced = price - discount;
        long seen = reduced;
        std::printf("MARK name=\"%s\" seen=%ld\n", name.c_str(), seen); // MARK
        std::printf("MARK price=%ld this->discount=%d\n", (long)price, discount); // MARK
        items.push_back(Item{name, (int)reduced});
        return reduced;
    }
    long total() const
    {
        long sum = 0;
        for (const Item &item : items) {
            sum += item.price;
            std::printf("MARK sum=%ld item.price=%d\n", sum, item.price); // MARK
        }
        return sum;
    }
};
}
int main(int argc, char **)
{
    shop::Cart cart;
    cart.add<int>("apple", 10 + argc);
    cart.add<long>("pear", 70L + argc);
    try {
        if (argc > 0)
            throw cart.total();
    } catch (long &caught) {
        int bonus = (int)caught + argc;
        std::printf("MARK bonus=%d\n", bonus); // MARK
    }
    return 0;
}
"""

RUST = r"""
struct Shape { name: String, side: i32 }
#[inline(never)]
fn measure(shape: &Shape, count: u32) -> i64 {
    let mut sum: i64 = 0;
    for number in 0..count {
        let scaled = shape.side as i64 * number as i64;
        sum += scaled;
        println!("MARK number={} scaled={} sum={}", number, scaled, sum); // MARK
        println!("MARK number={} shape.side={}", number, shape.side); // MARK
    }
    let sum = sum + 1;
    println!("MARK sum={} count={}", sum, count); // MARK
    sum
}
fn main() {
    let shape = Shape { name: String::from("square"), side: -8 };
    let result = measure(&shape, 3);
    println!("MARK result={} shape.name=\"{}\"", result, shape.name); // MARK
}
"""

#: A function that is inlined twice, and called once; another that is only inlined.
INLINED = r"""
#include <stdio.h>
static volatile int step = 3;
int scaled(int n)
{
    int m = n * step;
    printf("MARK n=%d m=%d\n", n, m);
    return m;
}
static int hidden(int n) { return scaled(n) + 1; }
int (*volatile call)(int) = scaled;
int main(int argc, char **argv)
{
    int sum = scaled(argc) + hidden(argc + 5);
    return sum + call(4) == 0;
}
"""

_SOURCES = {"gcc": ("c", C), "clang": ("c", C), "g++": ("cc", CXX), "clang++": ("cc", CXX)}
_ITEM = re.compile(r"(\S+?)=")


class Mark(NamedTuple):
    """A marked line: its number, and the items that it prints."""

    line: int
    items: list[str]


def made(folder: Path, compiler: str, *options: str) -> tuple[Path, Path]:
    """The program and its source."""
    ending, text = _SOURCES.get(compiler, ("rs", RUST))
    source, program = folder / f"places.{ending}", folder / "places"
    source.write_text(text)
    words = [need_program(compiler), *options, "-o", str(program), str(source)]
    compile_in(folder, words)
    return program, source


def marks(source: Path) -> list[Mark]:
    """The marked lines of a source."""
    found = []
    for number, line in enumerate(source.read_text().splitlines(), 1):
        if line.endswith("// MARK"):
            text = line.partition("MARK ")[2].partition("\\n")[0]
            found.append(Mark(number, _ITEM.findall(text.replace('", ', " "))))
    return found
