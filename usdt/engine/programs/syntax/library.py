"""Functions that are written in the language itself: macros of the toolkit, not of the program."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from usdt.base.frozen import replace
from usdt.engine.programs.syntax.macros import expand_macros
from usdt.engine.programs.syntax.parser import MAX_LENGTH, parse_program
from usdt.engine.programs.syntax.program import Probe, moved
from usdt.engine.programs.syntax.source import Source
from usdt.engine.programs.syntax.tree import Block, Call

if TYPE_CHECKING:
    from usdt.engine.programs.syntax.program import Program
    from usdt.engine.programs.syntax.tree import Expression

__all__ = ("expand_call",)

# A PID namespace has its processes in a tree of the kernel's kind xarray: entries whose low bits
# are 2 are nodes with 64 slots each, the leaves are of the type struct pid. Names of variables
# begin with two underscores: calls may be in macros of programs, which have their own.
_TEXT = """
macro initial_pid_namespace() {
  (uint64)curtask.thread_pid.numbers[0].ns
}

macro pid_namespace(inode) {
  let $__found = (uint64)0;
  let $__level = (uint64)0;
  let $__self = curtask.thread_pid;
  unroll(8) {
    if ($__level <= $__self.level && $__self.numbers[$__level].ns.ns.inum == inode) {
      $__found = (uint64)$__self.numbers[$__level].ns;
    }
    $__level++;
  }
  $__found
}

macro comm_of(pid, namespace) {
  let $__pid = (uint64)pid;
  let $__entry = (uint64)kptr((struct pid_namespace *)namespace).idr.idr_rt.xa_head;
  let $__node = kptr((struct xa_node *)($__entry - 2));
  if (($__entry & 3) != 2 || $__pid >> $__node.shift >= 64) { $__entry = 0; }
  unroll(6) {
    if (($__entry & 3) == 2) {
      $__node = kptr((struct xa_node *)($__entry - 2));
      $__entry = (uint64)$__node.slots[($__pid >> $__node.shift) & 63];
    }
  }
  let $__first = (uint64)kptr((struct pid *)$__entry).tasks[0].first;
  let $__task = kptr((struct task_struct *)($__first - offsetof(struct task_struct, pid_links)));
  $__first == 0 ? "N/A" : $__task.comm
}

// What stands in one piece behind skb->data; the rest of a packet is in pages.
macro packet(skb, length, offset) {
  let $__skb = kptr((struct sk_buff *)skb);
  let $__offset = (int64)offset;
  let $__length = (int64)length;
  let $__there = (int64)$__skb.len - (int64)$__skb.data_len - $__offset;
  if ($__length > $__there) { $__length = $__there; }
  if ($__length < 0) { $__length = 0; }
  (buf(kptr((uint8 *)((uint64)$__skb.data + (uint64)$__offset)), $__length),
    (int64)$__skb.len - $__offset)
}
"""


def expand_call(function: str, *arguments: Expression, at: Expression) -> Expression:
    """Return the body of a function of the library, in place of a call of it.

    Places in it are behind those that a program can have: they tell the variables of both apart.

    Args:
        function: its name.
        arguments: its arguments.
        at: the call in the program.
    """
    call = Call(function, arguments, at.start, at.end)
    block = Block((), call, at.start, at.end)
    program = replace(_library(), probes=(Probe((), None, block, at.start, at.end),))
    return expand_macros(Source(_TEXT, "library"), program).probes[0].block.value or call


@functools.cache
def _library() -> Program:
    program = parse_program(Source(_TEXT, "library"))
    return replace(program, macros=tuple(moved(one, MAX_LENGTH) for one in program.macros))
