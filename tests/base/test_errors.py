"""usdt.base.errors: the tree, and one-line messages that say what to do."""

from __future__ import annotations

import errno

import pytest

from usdt.base.errors import (
    ElfError,
    LanguageError,
    NotSupported,
    ProbeNotFound,
    SyscallError,
    TargetError,
    TracingError,
    VerifierError,
    with_place,
)

# As kernels print them: the reason is followed by statistics and ended by an empty line.
REFUSED = """\
func#0 @0
0: R1=ctx() R10=fp0
0: (79) r0 = *(u64 *)(r1 +100000)
invalid bpf_context access off=100000 size=8
processed 1 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0

"""
MEASURED = """\
0: (95) exit
R0 !read_ok
verification time 17 usec
stack depth 0
processed 1 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0
"""


@pytest.mark.parametrize(
    ("err", "kinds"),
    [
        (SyscallError(errno.EPERM, "bpf(BPF_MAP_CREATE)"), (OSError,)),
        (VerifierError(errno.EACCES, ""), (SyscallError, OSError)),
        (NotSupported("it"), ()),
        (LanguageError("p:x(", 4, "no end"), (ValueError,)),
        (ElfError("f: not ELF"), (ValueError,)),
        (ProbeNotFound("f: no probe p:x"), (LookupError,)),
        (TargetError("no process 1"), (LookupError,)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_every_error_is_ours_and_what_python_calls_it(
    err: TracingError, kinds: tuple[type[Exception], ...]
) -> None:
    assert isinstance(err, TracingError)
    assert all(isinstance(err, kind) for kind in kinds)
    assert "\n" not in str(err)
    assert str(err)


def test_a_system_call_is_named_and_keeps_its_errno() -> None:
    err = SyscallError(errno.EPERM, "bpf(BPF_MAP_CREATE)")
    assert (err.errno, err.call, err.hint) == (errno.EPERM, "bpf(BPF_MAP_CREATE)", "")
    assert err.strerror == "Operation not permitted"
    assert err.filename is None
    assert str(err) == "bpf(BPF_MAP_CREATE): Operation not permitted"


def test_a_hint_says_what_to_do() -> None:
    err = SyscallError(errno.EPERM, "perf_event_open", "run it as root")
    assert err.hint == "run it as root"
    assert str(err) == "perf_event_open: Operation not permitted (run it as root)"


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        pytest.param(REFUSED, "invalid bpf_context access off=100000 size=8", id="by level 1"),
        pytest.param(MEASURED, "R0 !read_ok", id="with statistics of level 4"),
        pytest.param("unknown func bpf_foo#999\n", "unknown func bpf_foo#999", id="one line"),
    ],
)
def test_a_verifiers_reason_is_the_last_line_that_is_no_statistics(log: str, reason: str) -> None:
    err = VerifierError(errno.EACCES, log)
    assert err.log == log
    assert err.errno == errno.EACCES
    assert str(err) == f"bpf(BPF_PROG_LOAD): Permission denied ({reason})"


@pytest.mark.parametrize("log", ["", "\n\n", "processed 0 insns (limit 1000000)\n"])
def test_a_log_without_a_reason_is_not_shown(log: str) -> None:
    assert str(VerifierError(errno.EINVAL, log)) == "bpf(BPF_PROG_LOAD): Invalid argument"


def test_a_missing_feature_says_since_when() -> None:
    err = NotSupported("the BPF ring buffer", (5, 8))
    assert (err.feature, err.since) == ("the BPF ring buffer", (5, 8))
    assert str(err) == "the BPF ring buffer needs Linux 5.8 or newer"


def test_a_feature_of_the_configuration_has_no_version() -> None:
    err = NotSupported("the uprobe PMU")
    assert err.since is None
    assert str(err) == "this kernel lacks the uprobe PMU"


def test_a_language_error_counts_columns_from_one_for_people() -> None:
    err = LanguageError("p:x(arg9z)", 4, "no argument arg9z")
    assert (err.text, err.column, err.reason) == ("p:x(arg9z)", 4, "no argument arg9z")
    assert str(err) == "no argument arg9z, at column 5 of 'p:x(arg9z)'"


def test_a_text_with_newlines_stays_one_line() -> None:
    assert "\n" not in str(LanguageError("a\nb", 1, "a newline"))


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("no value", "no value, here"),
        ("no x; did you mean y?", "no x, here; did you mean y?"),
        ("found 'x': did you mean y?", "found 'x', here: did you mean y?"),
        ("'did you mean' is no name", "'did you mean' is no name, here"),
        ("no 'did you mean'; did you mean y?", "no 'did you mean', here; did you mean y?"),
        ("is it?", "is it?, here"),
    ],
)
def test_a_place_precedes_a_suggestion(reason: str, said: str) -> None:
    assert with_place(reason, "here") == said


def test_a_suggestion_ends_an_error_of_the_language() -> None:
    error = LanguageError("p:x(agr0)", 4, "unknown name 'agr0'; did you mean arg0?")
    text = "unknown name 'agr0', at column 5 of 'p:x(agr0)'; did you mean arg0?"
    assert str(error) == text
