"""How user stacks are unwound: by the kernel, or from a copy of the stack when they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.arch.pt_regs import pt_regs_size
from usdt.arch.unwinding import STACK_POINTERS, STACK_UNIT
from usdt.base.errors import NotSupported, TracingError
from usdt.base.machine import KERNEL_MACHINE
from usdt.engine.compiler.limits import DEFAULT_STACK, MAX_STACK
from usdt.engine.compiler.record.columns import StackCopyColumn

if TYPE_CHECKING:
    from usdt.engine.compiler.limits import UnwindMethod

__all__ = ("StackCopies", "walks_by_tables")

_TASK_REGISTERS = "bpf_task_pt_regs(), for user stacks at probes of the kernel"
#: CPUs on which programs walk stacks in the kernel.
_WALKED = frozenset(("x86_64", "aarch64"))


def walks_by_tables(unwind: UnwindMethod, *, kernel: bool) -> bool:
    """Return whether programs walk user stacks by unwind tables, for keys of aggregations.

    Args:
        unwind: the method.
        kernel: whether the probe is in the kernel.

    Raises:
        NotSupported: unwind tables are asked for, and this kernel or CPU does not allow it.
    """
    if unwind == "fp":
        return False
    missing = _lacks(kernel=kernel)
    if missing is not None and unwind == "dwarf":
        raise missing
    return missing is None


def _lacks(*, kernel: bool) -> NotSupported | None:
    from usdt.bpf import features  # noqa: PLC0415 - only for stacks

    if KERNEL_MACHINE not in _WALKED:
        what = f"aggregation by stacks that are unwound by unwind tables on {KERNEL_MACHINE}"
        return NotSupported(what)
    if not features.have_loops():
        return NotSupported("bpf_loop(), to unwind stacks by unwind tables in the kernel", (5, 17))
    if kernel and not features.have_task_pt_regs():
        return NotSupported(_TASK_REGISTERS, (5, 15))
    return None


class StackCopies:
    """How user stacks are recorded.

    Args:
        unwind: the method.
        stack_bytes: the bytes of each stack to copy, if it is unwound by unwind tables.

    Raises:
        TracingError: ``stack_bytes`` is out of range.
    """

    def __init__(self, unwind: UnwindMethod = "auto", stack_bytes: int = DEFAULT_STACK) -> None:
        if not STACK_UNIT <= stack_bytes <= MAX_STACK:
            reason = f"{STACK_UNIT} to {MAX_STACK} bytes of a stack are copied, not {stack_bytes}"
            raise TracingError(reason)
        self._unwind = unwind
        # The copy begins below the stack pointer: one unit more has the bytes that are asked for.
        self._units = -(-stack_bytes // STACK_UNIT) + 1

    def user(self) -> StackCopyColumn | None:
        """Return the column of a user stack at probes of programs; None: by frame pointers.

        Raises:
            NotSupported: unwind tables are asked for, and stacks of this CPU cannot be unwound.
        """
        if self._unwind == "fp":
            return None
        if KERNEL_MACHINE not in STACK_POINTERS:
            if self._unwind == "dwarf":
                raise NotSupported(f"unwinding of stacks by unwind tables on {KERNEL_MACHINE}")
            return None
        return StackCopyColumn(pt_regs_size(KERNEL_MACHINE), self._units * STACK_UNIT)

    def kernel(self) -> StackCopyColumn | None:
        """Return the column of a user stack at probes of the kernel; None: by frame pointers.

        Raises:
            NotSupported: unwind tables are asked for, and this kernel or CPU does not allow it.
        """
        from usdt.bpf.features import have_task_pt_regs  # noqa: PLC0415 - only for stacks

        found = self.user()
        if found is None or have_task_pt_regs():
            return found
        if self._unwind == "dwarf":
            raise NotSupported(_TASK_REGISTERS, (5, 15))
        return None
