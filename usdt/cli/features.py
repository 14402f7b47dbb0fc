"""``usdt features``: what this kernel offers, and which way of attaching is used."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

import click

from bpf import features as kernel
from bpf.capabilities import missing_capabilities
from bpf.errors import SyscallError, TracingError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("features",)

_QUESTIONS: dict[str, tuple[str, Callable[[], bool], str]] = {
    "ringbuf": ("BPF ring buffer", kernel.have_ringbuf, "5.8"),
    "uprobe_pmu": ("uprobes by perf_event_open", kernel.have_uprobe_pmu, "4.17"),
    "cookies": ("BPF cookies", kernel.have_cookies, "5.15"),
    "sleepable_uprobes": ("sleepable uprobe programs", kernel.have_sleepable_uprobes, "6.0"),
    "uprobe_multi": ("uprobe_multi links", kernel.have_uprobe_multi, "6.6"),
    "batch_operations": ("batch operations on maps", kernel.have_batch_operations, "5.6"),
    "vmlinux_btf": ("BTF of the kernel", kernel.have_vmlinux_btf, "5.4"),
}


@click.command("features")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def features(*, as_json: bool) -> None:
    """Ask the kernel what it offers, and say which way of attaching is used."""
    missing = missing_capabilities()
    answers = {key: _ask(question) for key, (_, question, _) in _QUESTIONS.items()}
    path = _path(answers)
    release = os.uname().release
    if as_json:
        record = {
            "kernel": release,
            "machine": os.uname().machine,
            "missing_capabilities": missing,
            "features": answers,
            "attach": path,
        }
        sys.stdout.write(json.dumps(record) + "\n")
        return
    sys.stdout.write(f"Linux {release} on {os.uname().machine}\n")
    for key, (label, _, since) in _QUESTIONS.items():
        answer = answers[key]
        word = "yes" if answer else f"no (since Linux {since})"
        if answer is None:
            word = f"not known: needs {' and '.join(missing) or 'privilege'}"
        sys.stdout.write(f"  {label:<28} {word}\n")
    sys.stdout.write(f"attaching by: {path or 'not possible'}\n")


def _ask(question: Callable[[], bool]) -> bool | None:
    try:
        return question()
    except SyscallError:
        return None
    except TracingError:
        return False


def _path(answers: dict[str, bool | None]) -> str | None:
    if not answers["ringbuf"] or not answers["uprobe_pmu"]:
        return None
    try:
        return kernel.best_way().value
    except TracingError:
        return None
