"""``usdt features``: show kernel features, and the attach method that is used."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from usdt.base.errors import SyscallError, TracingError
from usdt.base.terminal.look import look_of
from usdt.bpf import features as kernel
from usdt.bpf.capabilities import missing_capabilities
from usdt.bpf.privileges import kernel_settings, privileges
from usdt.engine.cli.click_group import colour_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from usdt.base.terminal.look import Look

__all__ = ("features",)


class _Feature(NamedTuple):
    label: str
    is_supported: Callable[[], bool]
    since: str  # first Linux version
    without: str  # the consequence if the kernel lacks it


_FEATURES: dict[str, _Feature] = {
    "ringbuf": _Feature("BPF ring buffer", kernel.have_ringbuf, "5.8", "nothing can be traced"),
    "uprobe_pmu": _Feature(
        "uprobes by perf_event_open", kernel.have_uprobe_pmu, "4.17", "nothing can be traced"
    ),
    "cookies": _Feature(
        "BPF cookies",
        kernel.have_cookies,
        "5.15",
        "one program per probe and argument string, instead of one for all",
    ),
    "sleepable_uprobes": _Feature(
        "sleepable uprobe programs",
        kernel.have_sleepable_uprobes,
        "6.0",
        "memory that is not paged in is unreadable",
    ),
    "uprobe_multi": _Feature(
        "uprobe_multi links",
        kernel.have_uprobe_multi,
        "6.6",
        "descriptors per call site, instead of one for all",
    ),
    "batch_operations": _Feature(
        "batch operations on maps",
        kernel.have_batch_operations,
        "5.6",
        "maps are read entry by entry",
    ),
    "vmlinux_btf": _Feature(
        "BTF of the kernel", kernel.have_vmlinux_btf, "5.4", "kernel types are unknown"
    ),
    "fentry": _Feature(
        "fentry and fexit",
        kernel.have_fentry,
        "5.5, each CPU later",
        "kernel functions by kprobes only",
    ),
    "kprobe_multi": _Feature(
        "kprobe_multi links",
        kernel.have_kprobe_multi,
        "5.18, with CONFIG_FPROBE",
        "a perf event per kernel function, instead of one link for all",
    ),
    "kprobes": _Feature(
        "kprobes by perf_event_open",
        kernel.have_kprobes,
        "4.17, with CONFIG_KPROBE_EVENTS",
        "kernel functions by fentry only",
    ),
}


@click.command("features")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@colour_option
def features(*, as_json: bool) -> None:
    """Show what this kernel supports, the attach method used, and the capabilities needed."""
    missing = missing_capabilities()
    answers = {key: _ask(feature.is_supported) for key, feature in _FEATURES.items()}
    method = _attach_method(answers)
    release = os.uname().release
    if as_json:
        record = {
            "kernel": release,
            "machine": os.uname().machine,
            "missing_capabilities": missing,
            "features": answers,
            "attach": method,
            "privileges": {
                one.key: {"needs": list(one.needs), "lacks": one.lacks} for one in privileges()
            },
            "settings": kernel_settings(),
        }
        sys.stdout.write(json.dumps(record) + "\n")
        return
    look = look_of(sys.stdout)
    sys.stdout.write(f"{look.title}Linux {release} on {os.uname().machine}{look.end}\n")
    for key, feature in _FEATURES.items():
        text = _answer_text(feature, missing, answer=answers[key])
        shown = text if answers[key] else f"{look.warning}{text}{look.end}"
        sys.stdout.write(f"  {feature.label:<28} {shown}\n")
    unknown = "unknown" if missing else "not possible"
    sys.stdout.write(f"attaching by: {method or unknown}\n")
    _show_privileges(look)


def _show_privileges(look: Look) -> None:
    sys.stdout.write(f"{look.title}needed on this kernel:{look.end}\n")
    for one in privileges():
        lacks = ""
        if one.lacks:
            lacks = f"; {look.warning}this process lacks {' and '.join(one.lacks)}{look.end}"
        note = f" ({one.note})" if one.note else ""
        sys.stdout.write(f"  {one.label:<28} {', '.join(one.needs) or 'nothing'}{note}{lacks}\n")
    settings = " ".join(f"{name}={value}" for name, value in kernel_settings().items())
    sys.stdout.write(f"settings: {settings}\n")


def _answer_text(feature: _Feature, missing: list[str], *, answer: bool | None) -> str:
    if answer is None:
        return f"unknown: needs {' and '.join(missing) or 'privilege'}"
    return "yes" if answer else f"no (since Linux {feature.since}): {feature.without}"


def _ask(is_supported: Callable[[], bool]) -> bool | None:
    try:
        return is_supported()
    except SyscallError:
        return None
    except TracingError:
        return False


def _attach_method(answers: dict[str, bool | None]) -> str | None:
    if not answers["ringbuf"] or not answers["uprobe_pmu"]:
        return None
    try:
        return kernel.best_uprobe_method().value
    except TracingError:
        return None
