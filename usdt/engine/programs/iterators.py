"""The kernel's iterators, by its BTF: the probes ``iter:task`` and the like.

For the iterator NAME there are the function ``bpf_iter_NAME``, for which programs are loaded, and
``struct bpf_iter__NAME``, their context: first ``meta``, then the object, which is NULL at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.errors import NotSupported
from usdt.base.text import closest
from usdt.btf.format import Kind
from usdt.engine.programs.check.site import kernel_types

if TYPE_CHECKING:
    from usdt.btf.reader import Btf

__all__ = ("context_of", "function_of", "iterator_names", "unknown_iterator")

_STRUCT = "bpf_iter__"


def _btf() -> Btf:
    types = kernel_types()
    if types is None:
        raise NotSupported("BTF of the kernel, which names iterators,", (5, 4))
    return types.btf


def iterator_names() -> list[str]:
    """Return the names of the iterators; none if the kernel has no BTF."""
    if kernel_types() is None:
        return []
    btf = _btf()
    named = (name for _, name in btf.named(Kind.STRUCT) if name.startswith(_STRUCT))
    return sorted(name for one in named if function_of(name := one.removeprefix(_STRUCT)))


def function_of(name: str) -> int:
    """Return the ID of the function of an iterator; 0 if there is none.

    Raises:
        NotSupported: the kernel has no BTF.
    """
    found = _btf().find(f"bpf_iter_{name}", Kind.FUNC)
    return found[0] if found and context_of(name) else 0


def context_of(name: str) -> int:
    """Return the ID of the context's type; 0 if there is none.

    Raises:
        NotSupported: the kernel has no BTF.
    """
    return next(iter(_btf().find(f"{_STRUCT}{name}", Kind.STRUCT)), 0)


def unknown_iterator(name: str) -> str:
    """Return why there is no such iterator."""
    near = closest(name, iterator_names())
    hint = f"; did you mean iter:{near}?" if near else "; iter:task is one since Linux 5.8"
    return f"this kernel has no iterator {name!r}{hint}"
