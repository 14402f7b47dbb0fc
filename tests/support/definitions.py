"""Definitions of probe events, right and wrong: what both our parser and the kernel are given.

Each is one of the kernel's checks: the wrong ones cover every message of its error_log that a
uprobe can get, by more than one way where there is one; of kprobes, those that need no knowledge
of the running kernel's symbols and types.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from kprobe.events.values import (
    Argument,
    Comm,
    Definition,
    Deref,
    FileOffset,
    FunctionArgument,
    Immediate,
    KernelSymbol,
    Memory,
    MemoryOfFile,
    MemoryOfSymbol,
    Register,
    ReturnValue,
    Stack,
    StackSlot,
    Text,
    Type,
)

if TYPE_CHECKING:
    from kprobe.events import Dialect
    from kprobe.events.values import Fetch, ProbePoint

__all__ = (
    "KNOWLEDGE",
    "LAX",
    "PLACE",
    "event_definitions",
    "function_definitions",
    "generated",
    "kernel_definitions",
    "tracepoint_definitions",
    "user_definitions",
)

PLACE = "/bin/sh:0x1000"

_BODIES = r"""
%di %rdi %AX %ip %sp %flags %orig_ax %cs %ss %ds $stack $stack0 $stack99999 $stack-1 $stackx
$stack0x1 $stack18446744073709551616 $retval $retval1 $comm $COMM $comm1 $comm: $comm:string
$comm:u8 $comm:string[2] $comm:ustring $arg1 $arg0 $argx $arg* x=$arg* $foo $
@0 @0x10 @0x @08 @18446744073709551616 @+10 @+ @+-3 @sym @sym+1 @
+0(%di) -8(%di) +u0(%di) -u8(%di) +u(%di) +(%di) +0(%di +0%di) +0x10(+8(%sp)) --1(%di) +08(%di)
+0() +0($comm) +0(\"a") +0(\1) +9223372036854775808(%di) -9223372036854775808(%di)
\1 \-1 \+1 \x \ \0x10 \08 \18446744073709551615 \18446744073709551616 \-9223372036854775808
\"abc" \"abc \"a"b" \" \"" \"a:b" \"abc":string \"abc":u8 a0 s0 sa rv ra foo foo->bar
%di:u8 %di:u9 %di:U8 %di:x64 %di:x8 %di:s16 %di:char %di: %di:string %di:string[2] %di:ustring
%di:symbol %di:symstr +0(%di):symbol +0(%di):symstr +0(%di):%pd +0(%di):%pD
%di:b4@0/8 %di:b4@4/8 %di:b4@5/8 %di:b0@0/8 %di:b8@0/9 %di:b4@/8 %di:b4@0 %di:b %di:b4
%di:b0x4@0/8 %di:b@0/8 %di:b3@61/64 %di:b4@61/64 +0(%di):b4@0/8[2] +0(%di):B
+0(%di):string +0(%di):ustring +0(%di):string[2] @+0:string @+0:u8[4] @0:string
\1:string \1:string[2] \1:u8[2] $retval:string $stack0:string
+0(%di):u8[4] +u0(%di):u8[4] +u0(%di):string[2] +u0(+0(%di)):string +u0(%zz) +u0(%di +0(+u0(%zz))
+16(%di):b4@5/8 -8(+u4(%di)):u8[2]
%di:u8[4] $stack:u8[2] +0(%di):u8[0] +0(%di):u8[64] +0(%di):u8[65] +0(%di):u8[
+0(%di):u8[4 +0(%di):u8[4]x +0(%di):u8[x] +0(%di):u8[0x4] +0(%di):u8[-1] +0(%di):u8[+4]
+0(%di):u8] +0(%di):x8[x %di:[2] +0(%di):[2]
=%di a=%di a= a-b=%di 9a=%di common_pid=%di __probe_ip=%di common_foo=%di a=b=%di arg2=%di
aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=%di aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=%di
+0000000000000000000000000000000000000000000000000000000000(%di)
+00000000000000000000000000000000000000000000000000000000000(%di)
"""

_RETURNS = ("$retval", "$retval:string", "+0($retval):string", "$retval:u8[2]", "$arg1", "%di")

_NAMES = (
    *(":", ":/", ":g/", ":/e", ":g/e", ":g.e", ":g-a/e", ":g/e-a", ":9g/e", ":g/9e", ":a/b/c"),
    *(":a.b.c", ":a.b/c", ":é", ":a:b", "", f":{'g' * 63}/e", f":{'g' * 64}/e"),
    *(f":g/{'e' * 63}", f":g/{'e' * 64}", f":g/{'e' * 65}", f":{'e' * 64}"),
)

_OFFSETS = (
    *("0x1000", "0x", "1000", "08", "0x1000x", "0x1000%return", "0x1000%ret", "0x1000(0x10)"),
    *("0x1000(", "0x1000(0x10", "0x1000(0x10)x", "0x1000()", "0x1000(x)", "0x1000%return(0x10)"),
    *("0x1000(0x10)%return", "99999999999999999999", "0xffffffffffffffff", "1+1"),
)

_LINES = (
    f"p:usdt_check/e   {PLACE}    a=%di   b=%zz  # a comment, and spaces",
    f"p:usdt_check/e {PLACE} a=%di a=%si",
    f"p:usdt_check/e {PLACE} %di arg1=%si",
    f"p:usdt_check/e {PLACE} arg2=%si %di",
    f"p:usdt_check/e {PLACE} {' '.join(['%di'] * 128)}",
    f"p:usdt_check/e {PLACE} {' '.join(['%di'] * 129)}",
)

#: What the kernel takes for something else than it says, and we do not: place and code.
LAX = {
    f"p {PLACE} ++0(%di)": "BAD_DEREF_OFFS",
    f"p {PLACE} +-1(%di)": "BAD_DEREF_OFFS",
    f"p {PLACE} +0(%di)+10": "JUNK_AFTER_BRACE",
    f"px {PLACE}": "JUNK",
    f"r5:g/e {PLACE}": "JUNK",
}


def user_definitions() -> list[str]:
    """Every line."""
    nested = [
        f"{'+0(' * depth}{inner}{')' * depth}{kind}"
        for depth in range(11, 16)
        for inner in ("%di", "@+0")
        for kind in ("", ":string")
    ]
    return [
        *(f"p:usdt_check/e {PLACE} {body}" for body in (*_BODIES.split(), *nested)),
        *(f"r:usdt_check/e {PLACE} {body}" for body in _RETURNS),
        *(f"p{name} {PLACE}" for name in _NAMES),
        *(f"p:usdt_check/e /bin/sh:{offset}" for offset in _OFFSETS),
        *_LINES,
    ]


_KERNEL_PLACES = (
    *("vfs_read", "vfs_read+0", "vfs_read+x", "vfs_read-1", "vfs_read+", "vfs_read%return"),
    *("vfs_read+0%return", "vfs_read%ret", "vfs_read+0x", "vfs_read+99999999999999999999"),
)
_MAXACTIVE = ("r", "r10", "r0", "r1", "r4096", "r4097", "r99999", "r1x", "p10", "r0x10")


def _listed(text: str) -> list[str]:
    return [" ".join(part.split()) for part in text.split(";")]


_KERNEL_BODIES = _listed(
    r"""
    $arg1; $arg0; $arg9; $argx; $arg2049; $arg*; x=$arg*; $arg1:string; a0; foo; foo->bar; file->;
    foo-bar; file->9; @vfs_read; @vfs_read+1; @vfs_read-x; @nosuchsymbol; $stack2048; $stack2049;
    @+0; $arg* $arg*; $arg1 $arg*; %di $arg*; @vfs_read:string; @vfs_read+8:u8[4]; %ip:symbol;
    %ip:symstr; file; file->f_mode; file->nosuch; file.f_mode; count->x; count:string;
    +0(file):u8; +0(buf):ustring; $current; $retval; file:%pD; %di:%pd; %di:%pX; file->f_mode:u8[4]
    """
)

#: What only the running kernel knows: its symbols, files, events and types. Words of error_log.
KNOWLEDGE = (
    *("Failed to find the given file", "Not a regular file", "Failed to register probe event"),
    *("The symbol is not unique", "Tracepoint is not found", "This function returns 'void' type"),
    *("Probe point is not an instruction boundary", "Attached event does not exist"),
    *("Attached event does not have this field", "No BTF entry for this probe point"),
    *("This variable is not found at this probe point", "$argN index is too big"),
    *("This is not a pointer to union/structure.", "This type does not fit for string."),
    *("This field is not found.", "Failed to get BTF type info.", "BTF is not available"),
    *("Given group/event name is already used by another event",),
    *("Probe type is different from existing probe", "There is already the exact same probe event"),
    *("Argument type or name is different from existing probe",),
    *("Non pointer structure/union argument is not supported.", "$arg* failed because"),
)


def kernel_definitions() -> list[str]:
    """Lines for ``kprobe_events``; every kernel has ``vfs_read``."""
    bodies = [*_BODIES.split(), *_KERNEL_BODIES]
    return [
        *(f"p:usdt_check/e vfs_read {body}" for body in bodies),
        *(f"r:usdt_check/e vfs_read {body}" for body in (*_RETURNS, "$arg*", "file", "%di $arg*")),
        *(f"p{name} vfs_read" for name in _NAMES if name),
        *(f"p:usdt_check/e {place}" for place in _KERNEL_PLACES),
        *(f"{kind}:usdt_check/e vfs_read" for kind in _MAXACTIVE),
        "r:usdt_check/e vfs_read+5",
        "p:usdt_check/e vfs_read+64 $arg1",
        "p:usdt_check/e vfs_read+64 $arg*",
        f"p:usdt_check/e vfs_read {' '.join(['%di'] * 128)}",
        f"p:usdt_check/e vfs_read {' '.join(['%di'] * 129)}",
    ]


_EVENT_BODIES = _listed(
    r"""
    $next_pid; $next_comm; $next_comm:string; $nosuch; $next_pid:u8; $next_pid:s32;
    $next_pid:string;
    $next_pid:u8[2]; $next_pid:u9; x=$next_pid; $9; $; $next-pid; %di; %; $comm; $COMM;
    $comm:string;
    $stack; $retval; $arg1; $arg*; +0($next_pid); +0($next_pid):string; +0($nosuch); +x($next_pid);
    +0($next_pid; +0; @vfs_read; @0x10; @08; @+0; \1; \x; \"abc"; \"abc; \"abc":string; foo; x=;
    =$next_pid; common_pid=$next_pid; 9=$next_pid; $next_pid:b4@4/32; $next_pid:b4@0/9;
    $next_pid:[2]; $next_comm:ustring; $next_pid:symbol; $next_pid:; $next_pid if next_pid > 0;
    $next_pid if; if next_pid == 0 && prev_prio < 9; if; x=if; x=$next_pid x=$prev_pid;
    $next_pid arg1=$prev_pid
    """
)
_EVENTS = (
    *("sched.sched_switch", "sched/sched_switch", "sched", "sched.", ".sched_switch", "."),
    *("nosuch.event", "sched.nosuch", "9sched.sched_switch", "sched.sched-switch", "a.b.c"),
)


def event_definitions() -> list[str]:
    """Lines of event probes, for ``dynamic_events``."""
    return [
        *(f"e:usdt_check/e sched.sched_switch {body}" for body in _EVENT_BODIES),
        *(f"e:usdt_check/e {event} $next_pid" for event in _EVENTS),
        *(f"e{name} sched.sched_switch $next_pid" for name in _NAMES if name),
    ]


_FUNCTIONS = _listed(
    r"""
    vfs_read; vfs_read%return; vfs_read%return $retval; vfs_read $retval; vfs_read%ret;
    vfs_read%return $arg1; vfs_read%return %di; vfs_read+4; vfs_read%return $arg*;
    vfs_read x=$retval; nosuchfunction; vfs_read%return file; vfs_read%return $retval:u8[2];
    vfs_read%return $retval:string; vfs_read%return +0($retval):string; vfs_read $retval1
    """
)


def function_definitions() -> list[str]:
    """Lines of function probes, for ``dynamic_events``."""
    bodies = [*_BODIES.split(), *_KERNEL_BODIES]
    return [
        "f:usdt_check/e vfs_read $stack",
        *(f"f:usdt_check/e vfs_read {body}" for body in bodies),
        *(f"f:usdt_check/e {words}" for words in _FUNCTIONS),
        *(f"f{name} vfs_read" for name in _NAMES if name),
    ]


_TRACEPOINT_BODIES = _listed(
    r"""
    next; next->pid; next->nosuch; next.pid; nosuch; prev->comm:string; $arg1; $arg2->pid; $arg9;
    $arg*; $arg* $arg*; x=$arg*; $arg0; $retval; %di; $stack; $comm; +0(next):u8; next:u8[2];
    next-pid; next->9; preempt; preempt->x; preempt:string; \1; foo; @vfs_read; next->pid:s32;
    x=next->pid; =next; next->comm:u8[4]
    """
)
_TRACEPOINTS = (
    *("sched_switch", "sched:sched_switch", "nosuch", "9x", "a.b", "a-b", "sched_switch%return"),
)


def tracepoint_definitions() -> list[str]:
    """Lines of tracepoint probes, for ``dynamic_events``."""
    return [
        *(f"t:usdt_check/e sched_switch {body}" for body in _TRACEPOINT_BODIES),
        *(f"t:usdt_check/e {place}" for place in _TRACEPOINTS),
        *(f"t{name} sched_switch" for name in _NAMES if name),
    ]


# ---------------------------------------------------------------- made at random


class _Random:
    """Definitions of every shape, which the kernel takes."""

    def __init__(self, dialect: Dialect, seed: int, *, user: bool) -> None:
        self.chance = random.Random(seed)
        self.dialect = dialect
        self.user = user
        self.registers = sorted(dialect.registers or ("sp",))

    def _number(self, bits: int) -> int:
        return self.chance.getrandbits(self.chance.randrange(1, bits))

    def _simple(self, *, returns: bool) -> Fetch:
        kinds: list[Fetch] = [
            Register(self.chance.choice(self.registers)),
            Stack(),
            StackSlot(self._number(11)),
            Memory(self._number(47)),
        ]
        if returns:
            kinds.append(ReturnValue())
        elif not self.user and not self.dialect.variables:  # else the parameters are counted
            kinds.append(FunctionArgument(1 + self._number(3)))
        kinds.append(MemoryOfFile(self._number(20)) if self.user else self._symbol())
        return self.chance.choice(kinds)

    def _symbol(self) -> Fetch:
        return MemoryOfSymbol("vfs_read", self.chance.randrange(-64, 64))

    def _deref(self, *, returns: bool) -> Deref:
        found = self._simple(returns=returns)
        for _ in range(self.chance.randrange(1, 4)):
            sign = self.chance.choice((1, -1))
            found = Deref(sign * self._number(20), found, self.chance.random() < 0.2)
        assert isinstance(found, Deref)
        return found

    def _type(self, *, memory: bool, user: bool = False) -> Type | None:
        integer = self.chance.choice("usx") + self.chance.choice(("8", "16", "32", "64"))
        width = self.chance.randrange(1, 8)
        bits = f"b{width}@{self.chance.randrange(0, 9 - width)}/{self.chance.choice((8, 32, 64))}"
        found = [None, Type(integer), Type(bits)]
        if memory:
            strings = sorted(self.dialect.types & {"string", "ustring"})
            found += [Type(name, count) for name in strings for count in (0, 1, 4)]
            found += [Type(integer, self.chance.randrange(1, 65))] * (2 * (not user))
        return self.chance.choice(found)

    def _argument(self, number: int, *, returns: bool) -> Argument:
        name = f"a{number}" if self.chance.random() < 0.7 else None
        kind = self.chance.randrange(6)
        if kind == 0:
            text = self.chance.choice((Comm(), Text("a text".replace(" ", "_"))))
            return Argument(text, name, Type("string"))
        if kind == 1:
            return Argument(Immediate(self._number(31)), name, self._type(memory=False))
        fetch = (self._deref if kind < 4 else self._simple)(returns=returns)
        user = isinstance(fetch, Deref) and fetch.user
        made = Argument(fetch, name, self._type(memory=isinstance(fetch, Deref), user=user))
        fits = len(str(Argument(fetch, None, made.type))) <= self.dialect.maximum_body
        return made if fits else Argument(Stack(), name)

    def definition(self, number: int) -> Definition:
        """One, with up to eight arguments."""
        returns = self.chance.random() < 0.3
        if self.user:
            counter = self._number(20) if self.chance.random() < 0.1 else None
            place: ProbePoint = FileOffset("/bin/sh", 0x1000 + self._number(12), counter)
        else:
            place = KernelSymbol("vfs_read")
        maximum = self._number(8) + 1 if returns and not self.user else None
        arguments = [self._argument(n, returns=returns) for n in range(self.chance.randrange(0, 9))]
        return Definition(
            *("r" if returns else "p", place, tuple(arguments), "usdt_check", f"e{number}"),
            maximum if self.chance.random() < 0.5 else None,
        )


def generated(dialect: Dialect, count: int, *, user: bool) -> list[Definition]:
    """Definitions made at random, the same every time, of places that every machine has."""
    made = _Random(dialect, count, user=user)
    return [made.definition(number) for number in range(count)]
