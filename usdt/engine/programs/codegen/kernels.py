"""What programs need of the kernel."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from usdt.base.errors import NotSupported
from usdt.bpf._uapi import Helper
from usdt.engine.programs.typed import (
    AggregateNumber,
    CallHelper,
    CallWithObject,
    FindText,
    ForMap,
    Loop,
    MapLength,
    PathText,
)
from usdt.engine.programs.walk import parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.programs.typed import Statement

__all__ = ("check_kernel",)

# Node → what it is, and the first Linux with the helper that it calls: bpf_loop() (commit
# e6f2dd0f8067), bpf_for_each_map_elem() (69c087ba6225), bpf_map_lookup_percpu_elem()
# (07343110b293), bpf_d_path() (6e22ab9da793).
_SINCE: dict[type, tuple[str, tuple[int, int]]] = {
    Loop: ("a loop in a program", (5, 17)),
    FindText: ("strcontains(), strstr() or globmatch()", (5, 17)),
    ForMap: ("for over a map", (5, 13)),
    MapLength: ("len() of a map", (5, 13)),
    PathText: ("path()", (5, 10)),
    AggregateNumber: ("reading the result of count() and the like", (5, 19)),
}
# Helper → the function that calls it, and the first Linux that has it where that is allowed:
# bpf_get_socket_cookie() of fentry (c5dbb89fc2ac), bpf_get_func_ip() of uprobes (a3c485a5d8d4).
_HELPERS: dict[Helper, tuple[str, tuple[int, int]]] = {
    Helper.GET_SOCKET_COOKIE: ("socket_cookie()", (5, 12)),
    Helper.GET_FUNC_IP: ("uaddr() at the return of a function", (6, 6)),
}


def check_kernel(
    statements: Sequence[Statement], release: str | None = None, *, iterator: bool = False
) -> None:
    """Check that a kernel can run the statements of a probe.

    Args:
        statements: the statements.
        release: of the kernel; None: of this one.
        iterator: whether an iterator runs them.

    Raises:
        NotSupported: it lacks what one of them needs.
    """
    words = (release or os.uname().release).split(".")
    version = tuple(int("".join(c for c in word if c.isdigit()) or 0) for word in words[:2])
    for node in parts(*statements):
        needs = _SINCE.get(type(node))
        if isinstance(node, CallHelper | CallWithObject):
            needs = _HELPERS.get(node.helper)
        if iterator and isinstance(node, PathText):  # commit 3d06f34aa89e
            needs = "path() in an iterator", (5, 12)
        if needs is not None and version < needs[1]:
            raise NotSupported(*needs)
