"""Attach probes to kernel functions, with the newest attach method that works.

The context of a program depends on the attach method, so an attach point is made for one method.
If the kernel refuses it, the next method gets a new attach point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kprobe.functions.arguments import CallContextAbi, arguments_of
from kprobe.functions.attach_methods import NoAttachMethod, attach_methods_for
from kprobe.functions.kernel_types import KernelTypes
from kprobe.functions.lookup import find_functions, is_pattern
from kprobe.functions.prototypes import current_functions
from kprobe.functions.variables import running_variables, with_variables
from usdt.arch.context_registers import ContextRegisters
from usdt.base.errors import LanguageError, NotSupported, TracingError
from usdt.base.frozen import replace
from usdt.base.machine import KERNEL_MACHINE
from usdt.bpf import features
from usdt.bpf.kprobes import KprobeMethod
from usdt.engine.language.tree import ALL_ARGUMENTS, BUILTINS, Call, Name, walk
from usdt.engine.runtime.attach.attach_points import AttachPoint, FunctionTarget

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from kprobe.functions.lookup import KernelFunction
    from usdt.btf.reader import Btf
    from usdt.engine.compiler.arguments import Argument
    from usdt.engine.compiler.entry_return import EntryReturnMatch
    from usdt.engine.language.tree import Item, ProbeText
    from usdt.engine.runtime.attach.requests import AttachFailure
    from usdt.engine.runtime.session import BpfSession

__all__ = ("FunctionAttacher",)

# Functions that never return, of tools/objtool/noreturns.h: newer kernels refuse fexit programs on
# them, and older ones never free what those use.
_NEVER_RETURN = frozenset(
    (
        *("__ia32_sys_exit", "__ia32_sys_exit_group", "__x64_sys_exit", "__x64_sys_exit_group"),
        *("cpu_startup_entry", "do_exit", "do_group_exit", "do_task_dead", "kthread_exit"),
        *("kthread_complete_and_exit", "make_task_dead", "panic", "rewind_stack_and_make_dead"),
    )
)
_EXAMPLES = 3  # functions that a message names
_MANY = 1000  # show arguments by default up to this many functions


class FunctionAttacher:
    """An attacher of function probes to a session.

    Args:
        session: the session.
        counts: True if a probe without items shows no arguments, as when hits are counted.
        both_ends: True if a function without items is shown at its entry and its return.
        forced: the only attach method to use; None for any.

    Attributes:
        points: number of attached functions.
        notices: messages for the user.
    """

    def __init__(
        self,
        session: BpfSession,
        *,
        counts: bool,
        both_ends: bool = False,
        forced: KprobeMethod | None = None,
    ) -> None:
        self.points = 0
        self.notices: list[str] = []
        self._session = session
        self._counts = counts
        self._both_ends = both_ends
        self._forced = forced
        self._functions = current_functions()
        self._types: dict[tuple[str, bool], KernelTypes] = {}
        self._in_full = False  # whether the probe that is attached shows both ends

    def attach(self, request: ProbeText, names: AbstractSet[str], keys: Sequence[Item]) -> None:
        """Attach a probe.

        Args:
            request: a probe of kind ``kprobe`` or ``fentry``.
            names: the names in its items and keys.
            keys: items of ``--by`` and ``--key``.

        Raises:
            ProbeNotFound: there is no such function.
            TracingError: no function could be attached.
            NotSupported: this kernel has no attach method for it.
        """
        forced = KprobeMethod.FENTRY if request.kind == "fentry" else self._forced
        try:
            attach_methods_for(1, forced)  # before anything is searched
        except NoAttachMethod:
            find_functions(request, self._functions, typed=False, notices=[])  # none: say that
            raise
        values = any(not item.is_predicate for item in request.items)
        shown = not (self._counts or values)
        typed = shown or bool(names - BUILTINS)
        functions = find_functions(request, self._functions, typed=typed, notices=self.notices)
        if shown and len(functions) > _MANY and not names - BUILTINS:
            self.notices.append(
                f"{request.pattern}: {len(functions)} functions, shown without their "
                f"arguments (more than {_MANY})"
            )
            typed = False
        if any(function.offset for function in functions):
            typed = False
            _check_inside(request, names, functions[0])
        if ALL_ARGUMENTS in names and all(function.btf is None for function in functions):
            column = max(request.text.rfind(ALL_ARGUMENTS), 0)
            reason = (
                f"args: no parameters of {functions[0].shown} are known without BTF; name arg0…"
            )
            raise LanguageError(request.text, column, reason)
        self._in_full = (
            self._both_ends and not (request.items or keys or is_pattern(request)) and typed
        )
        methods = attach_methods_for(len(functions), forced)
        methods = _with_registers(methods, request, (*request.items, *keys), forced=bool(forced))
        left = self._by_methods(request, functions, methods, typed=typed, keys=keys)
        if len(left) == len(functions):
            raise next(iter(left.values()))
        self.points += len(functions) - len(left)
        self._tell(left)

    def _tell(self, left: dict[KernelFunction, TracingError]) -> None:
        errors = list(left.values())
        if len(errors) > _EXAMPLES:
            self.notices.append(f"not attached: {len(errors)} functions, such as {errors[0]}")
            return
        self.notices += [f"not attached: {error}" for error in errors]

    def _by_methods(
        self,
        request: ProbeText,
        functions: list[KernelFunction],
        methods: list[KprobeMethod],
        *,
        typed: bool,
        keys: Sequence[Item],
    ) -> dict[KernelFunction, TracingError]:
        # The functions that no method could attach, with the error of the last method.
        left: dict[KernelFunction, TracingError] = dict.fromkeys(functions, TracingError(""))
        for method in methods:
            mine: dict[int, KernelFunction] = {}
            points: list[AttachPoint] = []
            for function in left:
                if method is KprobeMethod.FENTRY and not (function.number and function.traceable):
                    what = f"{function.shown}: fentry needs BTF and a unique function name"
                    left[function] = NotSupported(what)
                    continue
                (point,) = with_variables(
                    [self._point(function, method, typed=typed)],
                    [*request.items, *keys],
                    function.module,
                )
                mine[id(point)] = function
                points.append(point)
            failures = self._session_attach(request, points, keys)
            failed = {id(point): one.error for one in failures for point in one.points}
            for number, function in mine.items():
                if number in failed:
                    left[function] = failed[number]
                else:
                    del left[function]
            if not left:
                break
        return left

    def _session_attach(
        self, request: ProbeText, points: list[AttachPoint], keys: Sequence[Item]
    ) -> list[AttachFailure]:
        if not points:
            return []
        if len(points) == 1 or not (request.items or keys):
            return self._session.attach(request, points)
        from usdt.engine.runtime.attach.requests import AttachFailure  # noqa: PLC0415 - only for patterns

        misfits = [(point, self._session.check_items(request, point)) for point in points]
        fitting = [point for point, why in misfits if why is None]
        wrong = [(point, why) for point, why in misfits if why is not None]
        if not fitting:
            raise wrong[0][1]
        return [
            *(AttachFailure((point,), why) for point, why in wrong),
            *self._session.attach(request, fitting),
        ]

    def _point(self, function: KernelFunction, method: KprobeMethod, *, typed: bool) -> AttachPoint:
        context = CallContextAbi(traced=method is KprobeMethod.FENTRY)
        arguments: tuple[Argument, ...] = ()
        if typed:
            arguments = arguments_of(function.btf, function.prototype, context)
        target = FunctionTarget(
            function.shown,
            function.symbol,
            function.address,
            function.offset,
            method,
            function.module,
            function.number,
        )
        ends = context.known and not function.offset
        if self._in_full and function.name in _NEVER_RETURN:
            ends = False
        return AttachPoint(
            f"kprobe:{function.shown}",
            "",
            "",
            0,
            0,
            arguments,
            function=function.shown,
            call=_stack(context, method) if ends else None,
            kernel_target=target,
            types=self._types_of(function, context),
            both_ends=self._in_full,
            registers=_registers(method, entry=not function.offset),
        )

    def _types_of(self, function: KernelFunction, context: CallContextAbi) -> KernelTypes:
        key = function.module, context.traced
        if key not in self._types:

            def source() -> Btf:
                found = self._functions.btf_of(function.module) or self._functions.btf_of("")
                if found is None:
                    raise NotSupported("BTF of the kernel")
                return found

            self._types[key] = KernelTypes(source)
        return self._types[key]


def _stack(context: CallContextAbi, method: KprobeMethod) -> EntryReturnMatch:
    if method is KprobeMethod.KPROBE_MULTI and all(features.kprobe_session()):
        return replace(context.stack, kernel_keeps_sp=True, return_pops=(0,))
    return context.stack


def _registers(method: KprobeMethod, *, entry: bool) -> ContextRegisters:
    machine = "" if method is KprobeMethod.FENTRY else KERNEL_MACHINE
    return ContextRegisters(machine, kernel=True, entry=entry)


def _with_registers(
    methods: list[KprobeMethod], request: ProbeText, items: Sequence[Item], *, forced: bool
) -> list[KprobeMethod]:
    # The methods whose programs have the registers that items read. fentry passes arguments only,
    # and kprobe_multi not every register (ftrace_regs, since Linux 6.14).
    trees = [node for item in items for node in walk(item.expression)]
    needing = [node for node in trees if isinstance(node, Call) and node.function == "reg"]
    lacking = {KprobeMethod.FENTRY, KprobeMethod.KPROBE_MULTI} if needing else set()
    callers = [node for node in trees if isinstance(node, Name) and node.name == "caller"]
    if callers:
        lacking.add(KprobeMethod.FENTRY)
    found = [method for method in methods if method not in lacking]
    if found:
        return found
    hint = "this kernel has no other method"
    if forced:
        hint = f"write kprobe:{request.name}" if request.kind == "fentry" else "omit --via"
    reason = f"programs attached by {methods[0]} do not have the register that this reads: {hint}"
    raise LanguageError(request.text, (needing or callers)[0].start, reason)


def _check_inside(request: ProbeText, names: AbstractSet[str], function: KernelFunction) -> None:
    known = {one.name for one in running_variables().arguments(sorted(names - BUILTINS))}
    asked = sorted(names - BUILTINS - known)
    if asked:
        raise LanguageError(
            request.text,
            max(request.text.rfind(asked[0]), 0),
            f"{function.shown} is inside a function: arguments and the return are only known at a "
            "function's entry; reg(NAME) reads a register",
        )
