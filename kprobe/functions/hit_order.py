"""The order of attaching functions, so that probes at one place fire in the order given.

At an entry, every method of the kernel runs first what was attached last: kprobes
(add_new_kprobe()), fentry (__bpf_trampoline_link_prog()), fprobes. At a return, so do fexit and,
since Linux 6.14, fprobes. Kretprobes and earlier fprobes keep a stack of calls, which turns the
order around once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kprobe.functions.attach_methods import attach_methods_for
from kprobe.functions.prototypes import current_functions
from usdt.base.errors import TracingError
from usdt.bpf.kprobes import KprobeMethod
from usdt.btf.format import Kind
from usdt.btf.types import Composite
from usdt.engine.language.tree import Name, walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.language.tree import Item, ProbeText

__all__ = ("in_attach_order",)

_AT_RETURN = ("return", "duration")


def in_attach_order(
    requests: Sequence[ProbeText], keys: Sequence[Item], forced: KprobeMethod | None
) -> list[ProbeText]:
    """Return probes on functions in the order in which they are to be attached.

    Args:
        requests: the probes, in the order in which they are to fire.
        keys: items of ``--by`` and ``--key``.
        forced: the only attach method to use; None for any.
    """
    if len(requests) < 2:
        return [*requests]
    returns = [one for one in requests if _hit_at_return((*one.items, *keys))]
    entries = [one for one in requests if one not in returns]
    if any(one.kind == "fentry" for one in requests):
        forced = KprobeMethod.FENTRY
    try:
        (method, *_) = attach_methods_for(1, forced)
    except TracingError:  # attaching says so
        return [*requests]
    if _last_return_first(method):
        returns.reverse()
    return [*returns, *reversed(entries)]


def _hit_at_return(items: Sequence[Item]) -> bool:
    nodes = [node for item in items for node in walk(item.expression) if isinstance(node, Name)]
    return any(node.at_return or node.name in _AT_RETURN for node in nodes)


def _last_return_first(method: KprobeMethod) -> bool:
    if method is not KprobeMethod.KPROBE_MULTI:
        return method is KprobeMethod.FENTRY
    btf = current_functions().btf_of("")
    found = [btf.type(number) for number in btf.find("fprobe", Kind.STRUCT)] if btf else []
    names = [one.name for kind in found if isinstance(kind, Composite) for one in kind.members]
    return "hlist_array" in names  # of fprobes that share one ftrace_ops
