"""The built-ins of programs: names that stand for a value of the hit."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from usdt.arch.locations import CurrentTask, Register, ValueClass, ValueType
from usdt.base.errors import TracingError
from usdt.base.frozen import replace
from usdt.base.machine import KERNEL_MACHINE
from usdt.base.text import closest
from usdt.bpf._uapi import Helper
from usdt.bpf.maps import possible_cpus
from usdt.btf.format import Kind
from usdt.btf.lookup import find_type
from usdt.engine.compiler.ir import S64, U64, ArgumentValue, Arithmetic, Builtin, Compare, Number
from usdt.engine.compiler.resolve.btf_types import enum_names
from usdt.engine.language.tree import StackKind
from usdt.engine.programs.check.nodes import constant
from usdt.engine.programs.check.operators import OperatorChecker
from usdt.engine.programs.check.site import enumerators, kernel_types
from usdt.engine.programs.included.constants import constants
from usdt.engine.programs.typed import CallHelper, Comm, MakeTuple, Scalar, StackOf, Text
from usdt.engine.programs.types import (
    BOOLEAN,
    INT64,
    UINT32,
    UINT64,
    IntegerType,
    PointerType,
    ShownAs,
    StackType,
    StringType,
    TupleType,
)

if TYPE_CHECKING:
    from usdt.engine.compiler.value_names import ValueNames
    from usdt.engine.programs.syntax import tree
    from usdt.engine.programs.typed import Value

__all__ = ("BUILTINS", "BuiltinChecker")

_COMM = 16
_SPECIAL = ("begin", "end", "self")  # probes of the tracer itself
_ALL = (1 << 64) - 1
_TRUTHS = {"true": 1, "1": 1, "false": 0, "0": 0}
_HIDDEN = re.compile("arg[0-9]+|return")  # what is no member of args
_SYSTEM_CALLS = ("__NR_", "SYS_")  # asm/unistd.h and sys/syscall.h: numbers of system calls
_FRAMES = 127  # PERF_MAX_STACK_DEPTH
_SAMPLES = ("profile", "interval", "software", "hardware", "watchpoint")
_CODE_SEGMENT = Register(136, 8)  # cs in struct pt_regs of x86-64; its low bits are the ring
# Built-ins of the engine, by their names here.
_ENGINE = {"pid": "pid", "tid": "tid", "uid": "uid", "gid": "gid", "cpu": "cpu", "cgroup": "cgroup"}
_CLOCKS = {
    "": Helper.KTIME_GET_NS,
    "monotonic": Helper.KTIME_GET_NS,
    "boot": Helper.KTIME_GET_BOOT_NS,
    "tai": Helper.KTIME_GET_TAI_NS,
}
BUILTINS = frozenset(
    (
        *_ENGINE,
        *("comm", "nsecs", "elapsed", "jiffies", "rand", "numaid", "curtask", "probe", "func"),
        *("probetype", "retval", "args", "kstack", "ustack", "username", "ncpus", "ppid"),
        *("pcomm", "cpid", "has_cpid", "usermode", "ctx"),
    )
)


class BuiltinChecker(OperatorChecker):
    """A checker of names."""

    def builtin(self, name: str, node: tree.Expression) -> Value:
        """Return the value of a built-in, an argument or a constant.

        Raises:
            LanguageError: there is none of the name.
        """
        found = self._builtin(name, node)
        if found is not None:
            return found
        found = self._constant_of(name)
        if found is not None:
            return found
        near = closest(name, [*BUILTINS, *self.site.scope.arguments])
        hint = f"; did you mean {near}?" if near else ""
        raise self.error(node, f"unknown name {name!r}{hint}")

    def _constant_of(self, name: str) -> Scalar | None:
        # A constant of an enumeration, which is shown by its name, or of headers.
        defined = self.state.defined
        if defined is not None and name in defined.enumerators:
            return _enumerator(defined.enumerators[name], defined.enumerations[name])
        found = constants().get(name)
        if found is None and name.startswith(_SYSTEM_CALLS):
            call = name.removeprefix("__NR_").removeprefix("SYS_")
            found = self.state.system_calls().get(call)
        if found is not None:
            return constant(found & _ALL)
        if name not in enumerators():
            return None
        value, number = enumerators()[name]
        types = kernel_types()
        return _enumerator(value, None if types is None else enum_names(types.btf.type(number)))

    def _builtin(self, name: str, node: tree.Expression) -> Value | None:
        name = name.removeprefix("__builtin_")  # bpftrace's names behind those of its library
        if name in _ENGINE:
            kind = UINT32 if name in ("pid", "tid") else UINT64  # the types that bpftrace has
            return Scalar(Builtin(name, _NODE_TYPES[name]), kind)
        if name.startswith("arg") and name[3:].isdigit():
            return self.named(name, node)
        if name in ("ppid", "pcomm"):
            return self.named(name, node)
        match name:
            case "args":
                return self._arguments(node)
            case "comm":
                return Comm(StringType(_COMM))
            case "nsecs":
                return self.clock("")
            case "elapsed":
                return self.arithmetic("-", self.clock(""), constant(self.state.began))
            case "jiffies":
                return self.step(CallHelper(Helper.JIFFIES64), UINT64)
            case "rand":
                return self.step(CallHelper(Helper.GET_PRANDOM_U32, low=True), UINT64)
            case "numaid":
                return self.step(CallHelper(Helper.GET_NUMA_NODE_ID, low=True), UINT64)
            case "ncpus":
                return constant(possible_cpus())
            case "username":
                kind = IntegerType(8, signed=False, shown=ShownAs.USER_NAME)
                return Scalar(Builtin("uid", ValueType(ValueClass.UNSIGNED, 4)), kind)
            case "ctx":
                return self._context(node)
            case "curtask":
                return self._task()
            case "probe":
                return _text(self.site.probe)
            case "probetype":
                return _text("special" if self.site.kind in _SPECIAL else self.site.kind)
            case "func":
                return _text(self.site.function or self.site.probe.rpartition(":")[2])
            case "retval":
                return self._result(node)
            case "usermode":
                return self._user_mode(node)
            case "kstack" | "ustack":
                self.check_stack(node)
                return self.stack(StackKind(name), _FRAMES)
            case "cpid":
                return constant(self.state.command)
            case "has_cpid":
                return Scalar(Number(int(bool(self.state.command)), S64), BOOLEAN)
        return None

    def _arguments(self, node: tree.Expression) -> Value:
        # All arguments that have names, as a record.
        names = [one for one in self.site.scope.arguments if not _HIDDEN.fullmatch(one)]
        if not names:
            raise self.error(node, f"{self.site.probe} has no arguments with names for args")
        values = tuple(self.named(name, node) for name in names)
        types = tuple(self.key_type(value, node) for value in values)
        return MakeTuple(values, TupleType(types, tuple(names)))

    def clock(self, name: str) -> Scalar:
        """Return the nanoseconds of a clock."""
        if name in ("", "monotonic"):
            return Scalar(Builtin("ts", U64), UINT64)
        if name == "sw_tai":  # for kernels before 6.1, which lack the helper
            ahead = time.clock_gettime_ns(time.CLOCK_TAI) - time.clock_gettime_ns(
                time.CLOCK_BOOTTIME
            )
            now = self.arithmetic("+", self.clock("boot"), constant(ahead))
            return Scalar(now.node, UINT64, now.before)
        return self.step(CallHelper(_CLOCKS[name]), UINT64)

    def check_stack(self, node: tree.Expression) -> None:
        """Refuse stacks in iterators, which no task runs into."""
        if self.site.kind == "iter":
            raise self.error(node, f"{self.site.probe} has no stack: no task has come there")

    def stack(self, kind: StackKind, frames: int) -> StackOf:
        """Return a stack."""
        self.state.stacks.add(frames)
        self.state.user_symbols = self.state.user_symbols or kind is StackKind.USER
        return StackOf(kind, StackType(kind, frames, self.state.stack_mode))

    def _task(self) -> Scalar:
        # A definition of the program's own comes before that of the kernel.
        node = ArgumentValue(CurrentTask(), U64)
        defined = self.state.defined
        own = None if defined is None else defined.types(kernel=True)
        types = own if own is not None and own.btf.find("task_struct", Kind.STRUCT) else None
        types = types or kernel_types()
        if types is None:
            return Scalar(node, UINT64)
        number = find_type(types.btf, "struct task_struct")
        whole = ValueType(ValueClass.BYTES, 1)
        kind = PointerType(whole, number, types, kernel=True, spelling="struct task_struct *")
        return Scalar(node, kind)

    def _context(self, node: tree.Expression) -> Scalar:
        if self.site.kind in _SPECIAL:
            raise self.error(node, f"ctx: {self.site.kind} has no context of a probe")
        types = kernel_types()
        if self.site.kind == "iter" and types is not None:
            name = self.site.probe.partition(":")[2]
            number = find_type(types.btf, f"struct bpf_iter__{name}")
            whole = ValueType(ValueClass.BYTES, 1)
            spelling = f"struct bpf_iter__{name} *"
            kind = PointerType(whole, number, types, kernel=True, spelling=spelling)
            return Scalar(Builtin("ctx", U64), kind)
        return Scalar(Builtin("ctx", U64), PointerType(kernel=True))

    def _user_mode(self, node: tree.Expression) -> Scalar:
        # begin and end run in the toolkit, as they do in bpftrace.
        kind = self.site.kind
        if kind in ("begin", "end", "self", "uprobe", "uretprobe", "usdt"):
            return constant(1)
        if kind in ("kprobe", "kretprobe", "fentry", "fexit"):
            return constant(0)
        if kind in _SAMPLES and KERNEL_MACHINE == "x86_64":
            ring = Arithmetic("&", ArgumentValue(_CODE_SEGMENT, U64), Number(3, U64), U64)
            user = Compare("!=", ring, Number(0, U64), U64)
            return Scalar(user, IntegerType(1, signed=False))
        raise self.error(node, f"usermode is not supported yet in probes of the kind {kind}")

    def option(self, node: tree.Call, name: str, default: Value, about: str = "") -> Value:
        """Return the value of an option of the program, which has the type of its default.

        Args:
            node: the call of getopt().
            name: the name of the option.
            default: its value if it is not given.
            about: what its help says.

        Raises:
            LanguageError: the default is no constant.
            TracingError: the option has another type.
        """
        self.state.asked[name] = _usage(name, default), about
        given = self.state.options.get(name, "")
        if isinstance(default, Text):
            return default if name not in self.state.options else _text(given or "")
        if not isinstance(default, Scalar) or not isinstance(default.node, Number):
            raise self.error(node, "the default of getopt() is a number, a boolean or a string")
        if name not in self.state.options:
            return default
        if default.type == BOOLEAN:
            value = _TRUTHS.get((given or "true").lower())
            wanted = "true or false"
        else:
            value, wanted = _number(given or ""), "a number"
            if value is None and given is not None:
                value = _TRUTHS.get(given.lower())
        if value is None:
            shown = "nothing" if given is None else repr(given)
            raise TracingError(f"--{name}: expected {wanted}, found {shown}")
        kind = BOOLEAN if default.type == BOOLEAN else INT64
        return replace(constant(value & _ALL), type=kind)

    def _result(self, node: tree.Expression) -> Value:
        if "return" not in self.site.scope.arguments:
            raise self.error(node, f"{self.site.probe} has no retval: it is no function's return")
        return self.named("return", node)


_NODE_TYPES = {
    "cgroup": U64,
    **dict.fromkeys(("pid", "tid", "uid", "gid", "cpu"), ValueType(ValueClass.UNSIGNED, 4)),
}


def _usage(name: str, default: Value) -> str:
    match default:
        case Text(text=text):
            return f"--{name}={text.decode('utf-8', 'replace')}"
        case Scalar(node=Number(value=value), type=kind) if kind != BOOLEAN:
            return f"--{name}={value}"
    return f"--{name}"


def _text(word: str) -> Text:
    text = word.encode("utf-8", "surrogateescape")
    return Text(text, StringType(len(text) + 1))


def _enumerator(value: int, names: ValueNames | None) -> Scalar:
    made = constant(value & _ALL)
    return replace(made, type=replace(INT64, names=names))


def _number(word: str) -> int | None:
    try:
        number = int(word, 0)
    except ValueError:
        return None
    return number if -1 << 63 <= number < 1 << 64 else None
