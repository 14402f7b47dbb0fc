"""Of which kernels' processes stacks are copied."""

from __future__ import annotations

import pytest

from usdt.base.errors import NotSupported
from usdt.engine.runtime import unwinding
from usdt.engine.runtime.unwinding import StackCopies


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_stacks_are_copied_by_64_bit_kernels(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwinding, "KERNEL_MACHINE", machine)
    assert StackCopies().user() is not None


@pytest.mark.parametrize("machine", ["i386", "arm", "s390x", "riscv64"])
def test_elsewhere_frame_pointers_are_followed(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unwinding, "KERNEL_MACHINE", machine)
    assert StackCopies().user() is None
    with pytest.raises(NotSupported, match=machine):
        StackCopies("dwarf").user()
