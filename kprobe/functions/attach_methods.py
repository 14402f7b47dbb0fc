"""Attach methods for kernel functions: those this kernel has, and what the others need."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from usdt.base.errors import NotSupported, TracingError
from usdt.bpf import features
from usdt.bpf.kprobes import KprobeMethod
from usdt.engine.runtime.attach.kprobe_batch import MAX_DEFINITIONS
from usdt.tracefs.multi_probe_events import multi_probe_supported

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("MAX_FENTRY_FUNCTIONS", "NoAttachMethod", "attach_methods_for", "missing_features")

MAX_FENTRY_FUNCTIONS = 16  # fentry loads one program per function


class NoAttachMethod(TracingError):  # noqa: N818 - as NotSupported
    """This kernel has no attach method for its functions."""


def _traced() -> str:
    if features.have_fentry():
        return ""
    if not features.have_vmlinux_btf():
        return "no BTF of the kernel (CONFIG_DEBUG_INFO_BTF)"
    return "the kernel refuses such programs (ftrace with direct calls, and this CPU's trampolines)"


def _multi() -> str:
    return "" if features.have_kprobe_multi() else "no CONFIG_FPROBE, or before Linux 5.18"


def _linked() -> str:
    if not features.have_kprobes():
        return "no kprobe PMU (CONFIG_KPROBE_EVENTS)"
    return "" if features.have_cookies() else "no BPF cookies, which came with Linux 5.15"


def _event() -> str:
    return "" if features.have_kprobes() else "no kprobe PMU (CONFIG_KPROBE_EVENTS)"


def _defined() -> str:
    from usdt.tracefs.mount import tracefs  # noqa: PLC0415 - only for the last method and messages

    try:
        path = f"{tracefs()}/kprobe_events"
    except TracingError as err:
        return str(err)
    return "" if os.path.exists(path) else "no kprobe_events in tracefs"  # noqa: PTH110


_LACKS: dict[KprobeMethod, Callable[[], str]] = {
    KprobeMethod.FENTRY: _traced,
    KprobeMethod.KPROBE_MULTI: _multi,
    KprobeMethod.PERF_LINK: _linked,
    KprobeMethod.PERF_EVENT: _event,
    KprobeMethod.KPROBE_EVENTS: _defined,
}


def missing_features() -> dict[KprobeMethod, str]:
    """Return what each attach method lacks on this kernel, newest first; "" if nothing."""
    return {method: lacks() for method, lacks in _LACKS.items()}


def _keeps_more() -> bool:
    # True if kprobe_multi misses fewer hits than fentry. kprobe_multi runs programs with preemption
    # disabled. While a task is preempted in a fentry program, the program does not run for others.
    return features.programs_are_preemptible() and all(features.kprobe_session())


def attach_methods_for(number: int, forced: KprobeMethod | None) -> list[KprobeMethod]:
    """Return the attach methods to try for a number of functions, newest first.

    Raises:
        NotSupported: the forced method is not available.
        NoAttachMethod: there is none; the message lists what each method lacks.
    """
    if forced is not None:
        why = _LACKS[forced]()
        if why:
            raise NotSupported(f"{forced} ({why})")
        return [forced]
    found: list[KprobeMethod] = []
    for method, lacks in _LACKS.items():
        if (method is not KprobeMethod.FENTRY or number <= MAX_FENTRY_FUNCTIONS) and not lacks():
            found.append(method)
    if KprobeMethod.FENTRY in found and _keeps_more():
        found.remove(KprobeMethod.FENTRY)
        found.insert(1, KprobeMethod.FENTRY)
    if KprobeMethod.PERF_LINK in found:
        found.remove(KprobeMethod.PERF_EVENT)  # the same interface with fewer features
    if KprobeMethod.KPROBE_EVENTS in found and len(found) > 1:
        found.remove(KprobeMethod.KPROBE_EVENTS)
        # Each perf event waits for RCU grace periods when created and closed: thousands take an
        # hour.
        if (
            number > MAX_DEFINITIONS
            and multi_probe_supported()
            and KprobeMethod.KPROBE_MULTI not in found
        ):
            found.insert(0, KprobeMethod.KPROBE_EVENTS)
    if not found:
        tried = "; ".join(f"{method}: {why}" for method, why in missing_features().items() if why)
        raise NoAttachMethod(f"this kernel cannot trace its functions: {tried}")
    return found
