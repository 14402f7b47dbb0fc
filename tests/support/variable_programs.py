"""Programs with global variables, which print addresses and values; for tests of variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kept_builds import KEPT, compile_in
from skips import need_program

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("ONE", "TWO", "built")

#: Two files: variables that they share, and static ones with the same names.
ONE = r"""
#include <stdio.h>
#define KEPT __attribute__((noinline, used))
#define USED __attribute__((used))
struct node { int a; unsigned low : 3, high : 5; const char *name; struct node *next; };
extern int shared, only_declared;
extern int other(int n), far(void);
int counter = 1;
static long state = -500;
static const int limit = 33;
static USED volatile int table[4] = {1, 2, 3, 4};
struct node first USED = {7, 1, 2, "first", 0};
struct node config USED = {42, 5, 6, "config", &first};
struct node *head USED = &config;
char text[8] USED = "hello";
__thread int per_thread = 9;
enum color { RED, GREEN = 5 } color USED = GREEN;
double ratio USED = 0.5;
volatile int keep;
KEPT int work(int n)
{
    static int calls = 60;
    calls += n;
    counter += n;
    state -= n;
    table[1] += n;
    config.a += n;
    per_thread += n;
    keep = limit;
    return calls + other(n) + far();
}
int main(void)
{
    for (int n = 1; n < 4; n++) {
        printf("%d %ld %d %d %d\n", counter, state, table[1], config.a, shared);
        fflush(stdout);
        work(n);
    }
    return 0;
}
"""
TWO = r"""
#define KEPT __attribute__((noinline, used))
int shared = 1000;
static int state = 77;
static int lonely = 88;
KEPT int other(int counter)
{
    shared += counter;
    return state += counter, lonely += counter;
}
KEPT int far(void)
{
    return state;
}
"""


def built(
    folder: Path,
    *options: str,
    compiler: str = "gcc",
    name: str = "two",
    kept: Path | None = KEPT,
) -> Path:
    """A program of both files; skips the test if it cannot be built."""
    for file, source in (("one.c", ONE), ("two.c", TWO)):
        (folder / file).write_text(source)
    command = [need_program(compiler), *options, "-w", "one.c", "two.c", "-o", name]
    done = compile_in(folder, command, check=False, kept=kept)
    if done.returncode and "-m32" in options:
        pytest.skip("needs a compiler of 32-bit programs: apt-get install gcc-multilib")
    assert done.returncode == 0, done.stderr
    return folder / name


#: Variables of namespaces and classes, with the same names in several scopes.
SCOPES = r"""
#include <cstdio>
#include <string>
#include <vector>
int counter = 1;
namespace { int hidden = 2; }
namespace shop {
int counter = 10;
std::string title = "a title";
std::vector<int> stock{4, 5, 6};
namespace { int inner = 20; }
enum class Mode { Idle, Busy = 7 } mode = Mode::Busy;
template <class T> struct Pool { static int used; };
template <class T> int Pool<T>::used = sizeof(T);
struct Cart {
    static int total;
    inline static long opened = 9;
    struct Limits { static int most; };
    int n = 0;
    __attribute__((noinline, used)) int add(int k);
};
int Cart::total = 30;
int Cart::Limits::most = 40;
extern int declared;
int &alias = counter;
Cart cart;
Cart *current = &cart;
int Cart::add(int k)
{
    total += k, counter += k, inner += k, hidden += k, opened += k, n += k;
    return total += Limits::most + shop::declared + Pool<int>::used++ + Pool<std::string>::used;
}
}
int shop::declared = 50;
__attribute__((noinline, used)) int outside(int k) { return ::counter += k; }
int main()
{
    for (int i = 1; i < 4; i++)
        shop::current->add(i), outside(i);
    std::printf("%d %s %zu\n", shop::alias, shop::title.c_str(), shop::stock.size());
    return (int)shop::mode == 1;
}
"""

#: Static variables of Rust.
RUST = """
use std::sync::atomic::{AtomicUsize, Ordering};
static HITS: AtomicUsize = AtomicUsize::new(5);
static mut RAW: u32 = 7;
pub static NAME: &str = "rusty";
mod stats {
    use super::*;
    pub static TOTAL: AtomicUsize = AtomicUsize::new(50);
    pub static mut LIST: [u16; 4] = [1, 2, 3, 4];
    #[inline(never)]
    #[no_mangle]
    pub fn record(n: usize) -> usize {
        TOTAL.fetch_add(n, Ordering::SeqCst);
        HITS.fetch_add(1, Ordering::SeqCst);
        unsafe { RAW += 1; LIST[0] += 1; }
        n
    }
}
fn main() {
    for i in 1..4 { println!("{} {}", stats::record(i), NAME); }
    unsafe { println!("{} {:?}", *(&raw const RAW), *(&raw const stats::LIST)); }
}
"""
