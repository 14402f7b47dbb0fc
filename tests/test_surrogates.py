"""Names with lone surrogates, which no file can have and no terminal can show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import kprobe
import usdt
from kprobe.functions.symbols import Kallsyms
from usdt.base.errors import TracingError

if TYPE_CHECKING:
    from collections.abc import Callable

LONE = "\ud800"


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda: usdt.list_probes(LONE), id="a library"),
        pytest.param(lambda: usdt.list_probes(f"/tmp/{LONE}"), id="a path"),
        pytest.param(lambda: usdt.attach(f"uprobe:libc:{LONE}", pid=1), id="a function"),
        pytest.param(lambda: usdt.attach(f"{LONE}:x:y", pid=1), id="a file"),
        pytest.param(lambda: usdt.attach("uprobe:libc:malloc", command=[LONE]), id="a command"),
        pytest.param(lambda: kprobe.attach(f"tracepoint:{LONE}:x"), id="a tracepoint"),
        pytest.param(lambda: kprobe.attach(f"syscall:{LONE}"), id="a system call"),
        pytest.param(lambda: kprobe.types(f"/tmp/{LONE}"), id="a file of types"),
        pytest.param(lambda: kprobe.types()[LONE], id="a type"),
    ],
)
def test_a_name_with_a_lone_surrogate_is_an_error_that_can_be_printed(
    call: Callable[[], object],
) -> None:
    with pytest.raises(TracingError) as caught:
        call()
    str(caught.value).encode()


def test_no_kernel_function_has_such_a_name() -> None:
    functions = Kallsyms(b"ffffffff81000000 T vfs_read\n")
    assert functions.named(LONE) == []
