"""Definitions of probe events, right and wrong: what both our parser and the kernel are given.

Each is one of the kernel's checks: the wrong ones cover every message of its error_log that a
uprobe can get, by more than one way where there is one; of kprobes, those that need no knowledge
of the running kernel's symbols and types.
"""

from __future__ import annotations

__all__ = ("LAX", "PLACE", "kernel_definitions", "user_definitions")

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
+0(%di):u8[4] %di:u8[4] $stack:u8[2] +0(%di):u8[0] +0(%di):u8[64] +0(%di):u8[65] +0(%di):u8[
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
# What stands for parameters of a function where the kernel knows their names, and what differs.
_TYPED = frozenset(
    (
        *("a0", "s0", "sa", "rv", "ra", "foo", "foo->bar", "x", "@", "@sym", "@sym+1"),
        *("$arg1", "$arg0", "$argx", "$arg*", "x=$arg*", "$retval:string"),
    )
)


def kernel_definitions() -> list[str]:
    """Lines for ``kprobe_events``; every kernel has ``vfs_read``."""
    bodies = [body for body in _BODIES.split() if body not in _TYPED]
    return [
        *(f"p:usdt_check/e vfs_read {body}" for body in bodies),
        *(f"r:usdt_check/e vfs_read {body}" for body in _RETURNS if body not in _TYPED),
        *(f"p{name} vfs_read" for name in _NAMES if name),
        *(f"p:usdt_check/e {place}" for place in _KERNEL_PLACES),
        *(f"{kind}:usdt_check/e vfs_read" for kind in _MAXACTIVE),
    ]
