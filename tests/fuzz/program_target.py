"""Fuzzing of programs: mutants of scripts are parsed, and their text is parsed to the same tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from program_text import program_text
from random_programs import Programs

if TYPE_CHECKING:
    from harness import Capture

__all__ = ("program_seeds", "run_program")

_SCRIPT = """\
#!/usr/bin/env bpftrace
#ifndef BPFTRACE_HAVE_BTF
#include <linux/sched.h>
#else
#define LIMIT (1 << 10)
#define TWICE(x) ((x) * 2)
#endif
config = { max_map_keys = 10; stack_mode = "perf" }
struct point { int x:3, y; struct { char *names[4]; int (*f)(int); }; } __attribute__((packed));
enum kind { A = 1, B };
typedef struct point *point_t;
let @m = lruhash(100);
macro add($x, @m, e) { $x += e; @m[tid] = e; $x }
fn twice($a : int64) : int64 { return $a * 2; }
BEGIN { printf("a\\n\\x41 %d\\n", LIMIT); /* a comment */ }
usdt:/usr/lib/*.so:p:n, uprobe:"/a b":f+0x10 /pid == 1 && TWICE(2) > 1/ {
  $p = (struct point *)arg0; // another
  let $y : uint8[4] = (uint8[4])1s;
  @[str($p->x), -1] = hist($p.y ? 1e3 : 0x1F, 2);
  if ($1 == $#) { $i++; } else if comptime sizeof(point_t) == 8 { --@c; }
  else { _ = add($i, @m, 1); }
  for ($i : 0..ncpus) { while (1) { unroll(3) { break; } continue } }
  print((1, (a=2, b="c"), { 3 }).0); delete(@m, tid); return;
}
"""


def program_seeds() -> list[bytes]:
    """Scripts that are right."""
    made = [program_text(Programs(seed).program()) for seed in range(6)]
    return [_SCRIPT.encode(), *(text.encode() for text in made)]


def run_program(capture: Capture, data: bytes) -> None:
    """Parse a mutant; its text, if it has no definitions without a name, gives the same tree."""
    from usdt.base.errors import ProgramError
    from usdt.engine.programs.syntax.macros import expand_macros
    from usdt.engine.programs.syntax.parser import parse_program
    from usdt.engine.programs.syntax.source import Source

    del capture
    source = Source(data.decode("utf-8", "surrogateescape"), "fuzz.bt")
    try:
        program = parse_program(source)
        expand_macros(source, program)
    except ProgramError as err:
        message = str(err)
    else:
        message = ""
        text = program_text(program)
        if "(anonymous" not in text:
            assert parse_program(Source(text, "again.bt")) == program
    assert message.isprintable(), repr(message)
