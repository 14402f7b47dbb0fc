"""``usdt run --info``: what of this kernel programs can use, in the form of ``bpftrace --info``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from usdt.base.errors import NotSupported, SyscallError, TracingError
from usdt.base.version import VERSION
from usdt.bpf import features
from usdt.bpf._uapi import MapType
from usdt.bpf.maps import MapSpec
from usdt.engine.programs.iterators import iterator_names

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ("kernel_info",)

_MAPS = {
    "array": MapType.ARRAY,
    "hash": MapType.HASH,
    "lruhash": MapType.LRU_HASH,
    "percpu array": MapType.PERCPU_ARRAY,
    "percpu hash": MapType.PERCPU_HASH,
    "percpu lruhash": MapType.LRU_PERCPU_HASH,
    "perf_event_array": MapType.PERF_EVENT_ARRAY,
    "stack_trace": MapType.STACK_TRACE,
    "ringbuf": MapType.RINGBUF,
}
_FEATURES: dict[str, Callable[[], bool]] = {
    "bpf_loop": features.have_loops,
    "btf": features.have_vmlinux_btf,
    "cookies": features.have_cookies,
    "map batch": features.have_batch_operations,
    "probe_write_user": features.expects_user_writes,
}
_PROBES: dict[str, Callable[[], bool]] = {
    "fentry": features.have_fentry,
    "iter": lambda: bool(iterator_names()),
    "kprobe": features.have_kprobes,
    "kprobe_multi": features.have_kprobe_multi,
    "uprobe": features.have_uprobe_pmu,
    "uprobe_multi": features.have_uprobe_multi,
}


def kernel_info() -> str:
    """Return lines ``NAME: yes`` or ``no``, or the error where nothing is known, under headings."""
    system = os.uname()
    lines = ["System", f"  OS: {system.sysname} {system.release} {system.version}"]
    lines += [f"  Arch: {system.machine}", "", "Build", f"  version: usdt {VERSION}"]
    maps = {name: _offers(kind) for name, kind in _MAPS.items()}
    parts: dict[str, Mapping[str, Callable[[], bool]]]
    parts = {"Kernel features": _FEATURES, "Map types": maps, "Probe types": _PROBES}
    for title, rows in parts.items():
        lines += ["", title, *(f"  {name}: {_answer(offered)}" for name, offered in rows.items())]
    return "".join(f"{line}\n" for line in lines)


def _offers(kind: MapType) -> Callable[[], bool]:
    # Whether the kernel makes maps of a type.
    sizes = {MapType.RINGBUF: (0, 0, 1 << 16), MapType.STACK_TRACE: (4, 64, 1)}
    key, value, entries = sizes.get(kind, (4, 4, 1))

    def try_it() -> bool:
        try:
            MapSpec(kind, key, value, entries).create().close()
        except NotSupported:
            return False
        return True

    return try_it


def _answer(offered: Callable[[], bool]) -> str:
    try:
        return "yes" if offered() else "no"
    except (SyscallError, TracingError) as err:
        return f"unknown: {err}"
