"""Built-ins that the kernel's description of the current task gives: ``ppid``, ``pcomm``.

Each is an expression of the language over the members of ``struct task_struct``, resolved by the
kernel's BTF. The parent is the thread that forked; its leader is the process.
"""

from __future__ import annotations

import functools

from usdt.arch.locations import CurrentTask
from usdt.engine.compiler.arguments import Argument
from usdt.engine.compiler.ir import U64
from usdt.engine.compiler.scope import Scope
from usdt.procfs.namespaces import in_initial_pid_namespace

__all__ = ("TASK_BUILTINS", "expression_of", "task_scope")

_TASK = "((struct task_struct *)task)"
_PARENT = f"{_TASK}->real_parent"
# In a child PID namespace, programs only see tasks of that namespace, so its level is the task's.
# Parents outside of it have the ID 0, as for getppid().
_LEVEL, _PID = f"{_TASK}->thread_pid->level", f"{_PARENT}->group_leader->thread_pid"
_NESTED = f"({_PID}->level >= {_LEVEL}) * {_PID}->numbers[{_LEVEL}].nr"
_EXPRESSIONS = {"pcomm": f"{_PARENT}->group_leader->comm", "ppid": f"{_PARENT}->tgid"}

TASK_BUILTINS = frozenset(_EXPRESSIONS)


def expression_of(name: str) -> str:
    """Return the expression of a built-in."""
    if name == "ppid" and not in_initial_pid_namespace():
        return _NESTED
    return _EXPRESSIONS[name]


@functools.cache
def task_scope() -> Scope:
    """Return the scope of these expressions.

    Raises:
        NotSupported: the kernel has no BTF.
    """
    from usdt.btf.reader import Btf  # noqa: PLC0415 - few probes need the kernel's types
    from usdt.engine.compiler.resolve.btf_types import BtfTypes  # noqa: PLC0415

    Btf.from_kernel()  # raises the error here
    task = Argument("task", U64, CurrentTask())
    return Scope("", "", {"task": task}, 0, types=BtfTypes(Btf.from_kernel))
