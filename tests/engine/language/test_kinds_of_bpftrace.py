"""Kinds of probes, and the result of a function, under the names that bpftrace has for them."""

from __future__ import annotations

import pytest

from usdt.base.errors import LanguageError
from usdt.engine.aggregate.spec import Aggregation, is_return
from usdt.engine.language import parse_probe
from usdt.engine.language.needs_types import untyped_names

KINDS = [
    ("t:sched:sched_switch", "tracepoint:sched:sched_switch"),
    ("tp:sched:sched_switch", "tracepoint:sched:sched_switch"),
    ("rt:sched_switch", "rawtp:sched_switch"),
    ("rawtracepoint:sched_switch", "rawtp:sched_switch"),
    ("raw_tracepoint:sched_switch", "rawtp:sched_switch"),
    ("k:vfs_read", "kprobe:vfs_read"),
    ("k:vfs_read+4", "kprobe:vfs_read+4"),
    ("u:libc:malloc", "uprobe:libc:malloc"),
    ("U:/bin/x:p:n", "usdt:/bin/x:p:n"),
    ("U:p:n", "usdt:p:n"),
    ("f:vfs_read", "fentry:vfs_read"),
    ("kfunc:vfs_read", "fentry:vfs_read"),
]
RETURNS = [
    ("kr:vfs_read", "kprobe:vfs_read"),
    ("kretprobe:vfs_read", "kprobe:vfs_read"),
    ("ur:libc:malloc", "uprobe:libc:malloc"),
    ("uretprobe:libc:malloc", "uprobe:libc:malloc"),
    ("fr:vfs_read", "fentry:vfs_read"),
    ("fexit:vfs_read", "fentry:vfs_read"),
    ("kretfunc:vfs_read", "fentry:vfs_read"),
]


def named(text: str) -> tuple[str | None, ...]:
    probe = parse_probe(text)
    return probe.kind, probe.path, probe.provider, probe.name, probe.pattern


@pytest.mark.parametrize(("short", "full"), KINDS, ids=[short for short, _ in KINDS])
def test_a_kind_may_be_written_as_in_bpftrace(short: str, full: str) -> None:
    assert named(short) == named(full)
    assert parse_probe(short).items == ()


@pytest.mark.parametrize(("short", "full"), RETURNS, ids=[short for short, _ in RETURNS])
def test_return_probes_are_probes_with_return(short: str, full: str) -> None:
    assert named(short) == named(full)
    for items in ("", "()", "(pid)", "(arg0 > 5)"):
        *written, last = parse_probe(short + items).items
        assert is_return(last)
        assert last.implied
        assert tuple(written) == parse_probe(full + items).items
    for items in ("(return)", "(pid, return > 0)", "(retval)", "(out(str(arg0)))"):
        assert parse_probe(short + items).items == parse_probe(full + items).items


def test_a_provider_of_such_a_name_is_named_in_full() -> None:
    assert named("usdt:k:hit") == ("usdt", None, "k", "hit", "k:hit")
    assert named("usdt:uretprobe:hit")[2:4] == ("uretprobe", "hit")


def test_the_return_that_is_implied_is_no_value_to_aggregate() -> None:
    request = parse_probe("kr:vfs_read(arg2)")
    assert Aggregation(stats=True).check(request) == request.items[0]
    alone = parse_probe("kr:vfs_read")
    assert Aggregation(stats=True).check(alone) == alone.items[0]
    assert Aggregation().check(alone) is None
    with pytest.raises(LanguageError, match="expected one value to aggregate, found two"):
        Aggregation(stats=True).check(parse_probe("kprobe:vfs_read(arg2, return)"))


def test_retval_needs_no_types() -> None:
    assert untyped_names(parse_probe("u:x:f(retval, n, retval > 0)").items) == ["n"]
