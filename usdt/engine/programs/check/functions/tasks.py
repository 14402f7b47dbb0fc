"""Functions of processes and threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import LanguageError
from usdt.bpf._uapi import Helper
from usdt.engine.compiler.ir import Number
from usdt.engine.programs.check.builtins import BUILTINS
from usdt.engine.programs.check.functions.arguments import FunctionChecker
from usdt.engine.programs.check.nodes import constant
from usdt.engine.programs.included.constants import constants
from usdt.engine.programs.syntax import tree
from usdt.engine.programs.typed import CallHelper, Evaluate
from usdt.engine.programs.types import INT64, UINT32
from usdt.procfs.namespaces import nested_pid_namespace

if TYPE_CHECKING:
    from usdt.engine.programs.typed import Statement, Value

__all__ = ("TaskFunctions",)

_MOST_SIGNAL = 64  # SIGRTMAX


class TaskFunctions(FunctionChecker):
    """A checker of the functions of processes and threads."""

    def _call_pid(self, node: tree.Call) -> Value:
        return self._number_of_task(node)

    def _call_tid(self, node: tree.Call) -> Value:
        return self._number_of_task(node)

    def _number_of_task(self, node: tree.Call) -> Value:
        given = self.arguments(node, 0, 1)
        where = given[0] if given else None
        name = where.name if isinstance(where, tree.Identifier) else ""
        if where is not None and name not in ("curr_ns", "init"):
            raise self.error(where, f"{node.function}() takes curr_ns or init")
        if name != "init":
            return self.builtin(node.function, node)
        high = node.function == "pid"
        call = CallHelper(Helper.GET_CURRENT_PID_TGID, low=not high, high=high)
        return self.step(call, UINT32)

    def _call_ppid(self, node: tree.Call) -> Value:
        return self._of_task(node, "real_parent", "tgid")

    def _call_pcomm(self, node: tree.Call) -> Value:
        return self._of_task(node, "real_parent", "comm")

    def _call_leader_tid(self, node: tree.Call) -> Value:
        return self._of_task(node, "group_leader", "pid")

    def _call_leader_comm(self, node: tree.Call) -> Value:
        return self._of_task(node, "group_leader", "comm")

    def _of_task(self, node: tree.Call, other: str, member: str) -> Value:
        # A member of a task that another one leads to: the current one, or that which is passed.
        given = self.arguments(node, 0, 1)
        if not given and node.function in BUILTINS:
            return self.builtin(node.function, node)
        task = given[0] if given else tree.Identifier("curtask", node.start, node.end)
        leader = tree.Member(task, other, arrow=True, start=node.start, end=node.end)
        return self.value(tree.Member(leader, member, arrow=True, start=node.start, end=node.end))

    def _call_comm(self, node: tree.Call) -> Value:
        given = self.arguments(node, 0, 1)
        if not given:
            return self.builtin("comm", node)
        self.number(given[0], "comm()")
        from usdt.engine.programs.syntax.library import expand_call  # noqa: PLC0415 - few programs

        nested = nested_pid_namespace()
        if nested is None:
            namespace = expand_call("initial_pid_namespace", at=node)
        else:
            inode = tree.Integer(nested[1], node.start, node.end)
            namespace = expand_call("pid_namespace", inode, at=node)
        try:
            return self.value(expand_call("comm_of", given[0], namespace, at=node))
        except LanguageError as err:
            raise self.error(node, f"comm(): {err.reason}") from err

    def _do_signal(self, node: tree.Call) -> tuple[Statement, ...]:
        return self._send_signal(node, Helper.SEND_SIGNAL)

    def _do_signal_thread(self, node: tree.Call) -> tuple[Statement, ...]:
        return self._send_signal(node, Helper.SEND_SIGNAL_THREAD)

    def _send_signal(self, node: tree.Call, helper: Helper) -> tuple[Statement, ...]:
        (first,) = self.arguments(node, 1, 1)
        if isinstance(first, tree.String):
            name = first.value.decode("ascii", "replace").upper()
            number = constants().get(name if name.startswith("SIG") else f"SIG{name}")
            if number is None:
                raise self.error(first, f"no signal {name!r}")
            value = constant(number)
        else:
            value = self.number(first, f"{node.function}()")
            if isinstance(value.node, Number) and not 1 <= value.node.value <= _MOST_SIGNAL:
                raise self.error(first, f"signals are numbers from 1 to {_MOST_SIGNAL}")
        return (Evaluate(self.step(CallHelper(helper, (value,)), INT64)),)
