"""Argument strings as compilers write them for x86-64 and i386: every shape is known."""

from __future__ import annotations

import pytest

from usdt.probes.argspec import parse_arguments

# Shapes that gcc and clang emit for sdt.h's macros, at -O0 and -O2, PIC, PIE and not; with the
# number of operands that cannot be read at run time for a reason of their own.
EMITTED = [
    ("x86_64", "-8@-8(%rbp) 8@-16(%rbp) -1@%dil -2@%di 2@%cx 1@%r9b -4@%r10d 1@-37(%rsp)", 0),
    ("x86_64", "-4@$1 -4@$-1 4@$-2147483648 -8@$123456789012345 1@$-1 -1@$-128 -8@$4096", 0),
    ("x86_64", "8@%rax 8@g_str@GOTPCREL(%rip) 8f@-88(%rsp) 4f@.LCPI12_0(%rip) 8f@.LC2(%rip)", 0),
    ("x86_64", "-4@g_int(%rip) -4@g_arr+12(%rip) -8@8+g_s(%rip) -1@g_str(%rdi)", 0),
    ("x86_64", "-4@g_arr(,%rdi,4) -4@-72(%rsp,%rdi,4) -4@48(%rdi,%rsi,4) -1@(%rdx,%rdi)", 0),
    ("x86_64", "-4@%fs:tls_int@tpoff 16@%rsi -16@%rax 16f@8(%rsp)", 1),
    ("i386", "-8@4(%esp) 8@(%esp) 2@%edi 1@%edx -1@%ebx -4@%ebp 4@$0 -8@$123456789012345", 0),
    ("i386", "4f@.LC1@GOTOFF(%eax) 8f@%edx 4f@.LC1 8f@%eax 8f@.LCPI12_1@GOTOFF(%eax)", 2),
    ("i386", "-4@g_int@GOTOFF(%eax) -4@12+g_arr@GOTOFF(%eax) -4@g_arr@GOTOFF(%eax,%edx,4)", 0),
    ("i386", "-1@g_str@GOTOFF(%eax,%edx) -4@g_int 4@g_ptr -4@g_arr+12 -4@g_arr(,%eax,4)", 0),
    ("i386", "-1@g_str(%eax) -4@g_s+8 -4@40(%eax,%edx,4) -1@24(%eax,%edx) -4@(%edx,%eax,4)", 0),
    ("i386", "-4@%gs:tls_int@ntpoff 4@40+CheckpointStats@GOTOFF(%ebx)", 1),
]


@pytest.mark.parametrize(("machine", "args", "unreadable"), EMITTED)
def test_shapes_compilers_emit_are_all_known(machine: str, args: str, unreadable: int) -> None:
    operands = parse_arguments(args, machine)
    assert [operand.text for operand in operands if operand.kind == "unknown"] == []
    assert sum(operand.error is not None for operand in operands) == unreadable
