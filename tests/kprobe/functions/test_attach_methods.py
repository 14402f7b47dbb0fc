"""The kernel's ways of attaching to functions: which are tried, and what is said without any."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kprobe.functions import attach_methods as ways
from kprobe.functions.attach_methods import (
    MAX_FENTRY_FUNCTIONS,
    NoAttachMethod,
    attach_methods_for,
    missing_features,
)
from usdt.base.errors import NotSupported
from usdt.bpf import features
from usdt.bpf.kprobes import KprobeMethod
from usdt.engine.runtime.attach.kprobe_batch import MAX_DEFINITIONS
from usdt.tracefs.multi_probe_events import multi_probe_supported

_KPROBE = Path(sys.executable).with_name("kprobe")


def _only(monkeypatch: pytest.MonkeyPatch, *there: KprobeMethod) -> None:
    table = {way: (lambda way=way: "" if way in there else f"no {way}") for way in KprobeMethod}
    monkeypatch.setattr(ways, "_LACKS", table)
    monkeypatch.setattr(features, "programs_are_preemptible", lambda: False)


def test_the_newest_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    _only(monkeypatch, *KprobeMethod)
    assert attach_methods_for(1, None) == [
        KprobeMethod.FENTRY,
        KprobeMethod.KPROBE_MULTI,
        KprobeMethod.PERF_LINK,
    ]


def test_where_tasks_are_preempted_in_programs_fentry_is_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _only(monkeypatch, *KprobeMethod)
    monkeypatch.setattr(features, "programs_are_preemptible", lambda: True)
    monkeypatch.setattr(features, "kprobe_session", lambda: (0, 0))
    assert attach_methods_for(1, None)[0] is KprobeMethod.FENTRY, (
        "kprobe_multi cannot do all that fentry can"
    )
    monkeypatch.setattr(features, "kprobe_session", lambda: (1, 2))
    assert attach_methods_for(1, None)[:2] == [KprobeMethod.KPROBE_MULTI, KprobeMethod.FENTRY]
    assert attach_methods_for(1, KprobeMethod.FENTRY) == [KprobeMethod.FENTRY]


def test_many_functions_get_no_program_each(monkeypatch: pytest.MonkeyPatch) -> None:
    _only(monkeypatch, *KprobeMethod)
    assert KprobeMethod.FENTRY in attach_methods_for(MAX_FENTRY_FUNCTIONS, None)
    assert KprobeMethod.FENTRY not in attach_methods_for(MAX_FENTRY_FUNCTIONS + 1, None)


@pytest.mark.skipif(not multi_probe_supported(), reason="needs x86-64")
def test_hundreds_are_defined_in_tracefs_where_one_call_does_not_attach_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    older = (
        KprobeMethod.FENTRY,
        KprobeMethod.PERF_LINK,
        KprobeMethod.PERF_EVENT,
        KprobeMethod.KPROBE_EVENTS,
    )
    _only(monkeypatch, *older)
    assert attach_methods_for(MAX_DEFINITIONS, None) == [KprobeMethod.PERF_LINK]
    assert attach_methods_for(MAX_DEFINITIONS + 1, None) == [
        KprobeMethod.KPROBE_EVENTS,
        KprobeMethod.PERF_LINK,
    ]
    _only(monkeypatch, *KprobeMethod)
    assert attach_methods_for(38_000, None)[0] is KprobeMethod.KPROBE_MULTI


def test_the_oldest_are_for_want_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    _only(monkeypatch, KprobeMethod.PERF_EVENT, KprobeMethod.KPROBE_EVENTS)
    assert attach_methods_for(1, None) == [KprobeMethod.PERF_EVENT]
    _only(monkeypatch, KprobeMethod.KPROBE_EVENTS)
    assert attach_methods_for(1, None) == [KprobeMethod.KPROBE_EVENTS]


def test_a_way_that_is_asked_for_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _only(monkeypatch, *KprobeMethod)
    assert attach_methods_for(1000, KprobeMethod.FENTRY) == [KprobeMethod.FENTRY]
    _only(monkeypatch, KprobeMethod.FENTRY)
    with pytest.raises(NotSupported, match="kprobe_multi"):
        attach_methods_for(1, KprobeMethod.KPROBE_MULTI)


def test_without_any_every_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _only(monkeypatch)
    with pytest.raises(NoAttachMethod) as caught:
        attach_methods_for(1, None)
    assert all(f"{way}: no {way}" in str(caught.value) for way in KprobeMethod)
    assert "\n" not in str(caught.value)


@pytest.mark.root
def test_the_command_says_it_in_one_line() -> None:
    if features.have_kprobes() or features.have_fentry():
        pytest.skip("functions can be traced here")
    words = [_KPROBE, "trace", "ip_send_skb(skb->len)"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert all(f"{way}: {why}" in line for way, why in missing_features().items() if why)
