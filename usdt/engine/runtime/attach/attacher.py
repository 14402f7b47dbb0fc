"""The attacher: passes each attach request to the module for its kind of attach point.

Sites of files: :mod:`usdt.engine.runtime.attach.uprobes`. Kernel functions:
:mod:`usdt.engine.runtime.attach.kernel_functions`. Events and system calls of the kernel:
:mod:`usdt.engine.runtime.attach.kernel_events`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.engine.compiler.codegen.record import RECORD_ACTION
from usdt.engine.runtime.attach.attach_points import FunctionTarget
from usdt.engine.runtime.attach.loader import ProgramLoader
from usdt.engine.runtime.attach.uprobes import UprobeAttacher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.bpf.link import UprobeMethod
    from usdt.bpf.maps import Map
    from usdt.engine.compiler.codegen.model import ActionEmitter, TaskFilter
    from usdt.engine.runtime.attach.requests import AttachFailure, AttachRequest

__all__ = ("Attacher",)


class Attacher(ProgramLoader):
    """A loader that also attaches programs, and keeps them until it is closed.

    Args:
        maps: maps that programs refer to, by name.
        accept: the traced processes.
        via: the attach method of uprobes; None selects the newest that the kernel has.
        action: emits the action at a hit.
        may_sleep: whether programs may take page faults, if the kernel allows it.
    """

    def __init__(
        self,
        maps: dict[str, Map],
        accept: TaskFilter,
        via: UprobeMethod | None = None,
        action: ActionEmitter = RECORD_ACTION,
        *,
        may_sleep: bool = True,
    ) -> None:
        super().__init__(maps, accept, action)
        self._uprobes = UprobeAttacher(self, via, may_sleep=may_sleep)

    def attach(self, requests: Sequence[AttachRequest]) -> list[AttachFailure]:
        """Attach to every attach point; return the failures. A failure does not stop the others.

        Raises:
            SyscallError: no program could be loaded at all, usually for lack of privileges.
            NotSupported: system calls cannot be traced on this CPU.
        """
        failures: list[AttachFailure] = []
        sites = [request for request in requests if request.point.kernel_target is None]
        functions = [
            request
            for request in requests
            if isinstance(request.point.kernel_target, FunctionTarget)
        ]
        events = [
            request
            for request in requests
            if request.point.kernel_target is not None
            and not isinstance(request.point.kernel_target, FunctionTarget)
        ]
        if functions:
            from usdt.engine.runtime.attach.kernel_functions import attach_kernel_functions  # noqa: PLC0415 - not for files

            failures += attach_kernel_functions(self, functions)
        if events:
            from usdt.engine.runtime.attach.kernel_events import attach_kernel_events  # noqa: PLC0415 - not for files

            failures += attach_kernel_events(self, events)
        if sites:
            failures += self._uprobes.attach(sites)
        return failures
