"""Functions that are written in the language itself: macros of the toolkit, not of the program."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from usdt.base.frozen import fields_of, replace
from usdt.engine.programs.syntax.macros import expand_macros
from usdt.engine.programs.syntax.parser import MAX_LENGTH, parse_program
from usdt.engine.programs.syntax.program import Probe
from usdt.engine.programs.syntax.source import Source
from usdt.engine.programs.syntax.tree import Block, Call, Variable

if TYPE_CHECKING:
    from usdt.engine.programs.syntax.program import Program
    from usdt.engine.programs.syntax.tree import Expression

__all__ = ("expand_call",)

# A PID namespace has its processes in a tree of the kernel's kind xarray: entries whose low bits
# are 2 are nodes with 64 slots each, the leaves are of the type struct pid.
_TEXT = """
macro initial_pid_namespace() {
  (uint64)curtask.thread_pid.numbers[0].ns
}

macro pid_namespace(inode) {
  let $found = (uint64)0;
  let $level = (uint64)0;
  let $self = curtask.thread_pid;
  unroll(8) {
    if ($level <= $self.level && $self.numbers[$level].ns.ns.inum == inode) {
      $found = (uint64)$self.numbers[$level].ns;
    }
    $level++;
  }
  $found
}

macro comm_of(pid, namespace) {
  let $pid = (uint64)pid;
  let $entry = (uint64)kptr((struct pid_namespace *)namespace).idr.idr_rt.xa_head;
  let $node = kptr((struct xa_node *)($entry - 2));
  if (($entry & 3) != 2 || $pid >> $node.shift >= 64) { $entry = 0; }
  unroll(6) {
    if (($entry & 3) == 2) {
      $node = kptr((struct xa_node *)($entry - 2));
      $entry = (uint64)$node.slots[($pid >> $node.shift) & 63];
    }
  }
  let $first = (uint64)kptr((struct pid *)$entry).tasks[0].first;
  let $task = kptr((struct task_struct *)($first - offsetof(struct task_struct, pid_links)));
  $first == 0 ? "N/A" : $task.comm
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
    return replace(program, macros=tuple(map(_moved, program.macros)))


def _moved(node: Any) -> Any:
    # The same node with its places moved behind the longest program, and variables of its own.
    changed: dict[str, Any] = {}
    if isinstance(node, Variable):
        node = replace(node, name=f"{node.name}'")
    for name, value in fields_of(node).items():
        if name in ("start", "end"):
            changed[name] = value + MAX_LENGTH
        elif isinstance(value, tuple):
            changed[name] = tuple(_moved(one) if _is_node(one) else one for one in value)
        elif _is_node(value):
            changed[name] = _moved(value)
    return replace(node, **changed)


def _is_node(value: object) -> bool:
    return hasattr(type(value), "__match_args__")
