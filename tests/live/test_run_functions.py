"""Functions in programs of ``usdt run``: what they return, and which calls are refused."""

from __future__ import annotations

import fnmatch
import gc
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from skips import need_program

from usdt.arch.pt_regs import instruction_pointer
from usdt.base.errors import LanguageError, ProgramError
from usdt.base.machine import KERNEL_MACHINE
from usdt.tracefs.mount import tracefs

if TYPE_CHECKING:
    from pathlib import Path

    from program_runs import Run

# What stands between BEGIN { and exit(); } → what it prints
_BODIES = {
    "questions about types": (
        (
            '$n = (uint8)1; print((is_str("a"), is_str(comm), is_str(1), is_ptr(curtask),'
            ' is_ptr(1), is_integer($n), is_integer(true), is_array(pton("::1")),'
            " is_unsigned_integer($n), is_unsigned_integer(-1), is_literal(1), is_literal($n)));"
        ),
        "(true, true, false, true, false, true, false, true, true, false, true, false)\n",
    ),
    "assertions that hold": (
        'assert(pid > 0, "no"); static_assert(1 == 1, "no"); assert_str("a"); print(1);',
        "1\n",
    ),
    "a failure that is left out": (
        'if ($# > 0) { fail("no") } else if ($# == 0) { print(1); } else { fail("no"); }',
        "1\n",
    ),
    "places in strings": (
        (
            '$s = "abcabd"; $p = "abd"; print((strstr($s, "c"), strstr($s, $p), strstr($s, "x"),'
            ' strstr($s, ""), strstr("ab", $s)));'
        ),
        "(2, 3, -1, 0, -1)\n",
    ),
    "comparisons of bytes": (
        (
            '$s = "abcdefghijk"; print((memcmp($s, "abcdefghijz", 11), memcmp($s, "abcdefghijz",'
            ' 10), memcmp("z", "a", 1), memcmp($s, "abd", 3), memcmp($s, $s, 0)));'
        ),
        "(-15, 0, 25, -1, 0)\n",
    ),
    "sizes of strings": (
        '$s = "abc"; print((strcap($s), strcap(comm), default_str_length()));',
        "(4, 16, 1024)\n",
    ),
    "find": (
        (
            '@m[1, "a"] = (5, "five"); let $v; print(find(@m, (1, "a"), $v)); print($v);'
            ' print(find(@m, (2, "b"), $v)); print($v); clear(@m);'
            " @n[3] = 4; $k = 3; print(find(@n, $k++, $k)); print($k); clear(@n);"
        ),
        "true\n(5, five)\nfalse\n(5, five)\ntrue\n4\n",
    ),
    "what was deleted": (
        "@m[1] = 5; @s = 1; print((delete(@m, 1), delete(@m, 1), delete(@s)));",
        "(true, false, true)\n",
    ),
    "numbers as names": (
        (
            "print((strerror(2), strerror(-2), signal_name(9), signal_name(99), signal_name(-1)));"
            " print(syscall_name(99999));"
        ),
        (
            "(No such file or directory, No such file or directory, Killed, N/A, N/A)\n"
            "Unknown syscall\n"
        ),
    ),
    "other tasks": (
        (
            "print((ppid(curtask) == ppid, pcomm(curtask) == pcomm, pid(curr_ns) == pid,"
            " tid(curr_ns) == tid(), comm() == comm, leader_comm == leader_comm(curtask),"
            " leader_tid == pid));"
        ),
        "(true, true, true, true, true, true, true)\n",
    ),
    "parts of strings": (
        (
            '$s = "abcdef"; print((str("abc", 2), str($s, 3), str($s, 99), strlen(str(comm, 3))));'
            " for ($i : 0..1) { print(str($s, 3)); }"
        ),
        "(ab, ab, abcdef, 2)\nab\n",
    ),
    "strings behind strings": (
        (
            '$s = "abc"; print((str_concat($s, "def"), str_concat("x", "yz"), str_concat("", $s)));'
            ' print((str_concat(str_concat($s, $s), $s), str_concat($s, "") == "abc"));'
            ' for ($i : 0..1) { print(str_concat($s, str_concat("-", $s))); }'
            ' @m[str_concat($s, "k")] = str_concat("v", $s); print(@m["abck"]); clear(@m);'
        ),
        "(abcdef, xyz, abc)\n(abcabcabc, true)\nabc-abc\nvabc\n",
    ),
    "numbers of system calls": (
        "print((syscall_name(__NR_bpf), syscall_name(SYS_openat), __NR_bpf == SYS_bpf));",
        "(bpf, openat, true)\n",
    ),
    "flags of allocations": (
        (
            '$io = 0xc0; printf("%gr|%-4gr|%12gr|%gr\\n", $io, 0, 1 << 32, $io | 1 << 32);'
            ' @m["a"] = 0xc0; printf("%gr\\n", @m["a"]); clear(@m);'
        ),
        ("__GFP_IO|__GFP_FS|0   | 0x100000000|__GFP_IO|__GFP_FS|0x100000000\n__GFP_IO|__GFP_FS\n"),
    ),
    "addresses of hardware": (
        '$m = (uint8[6])1; printf("%s %s\\n", macaddr($m), macaddr((uint8[8])0x0102));',
        "01:00:00:00:00:00 02:01:00:00:00:00\n",
    ),
    "loops without parentheses": (
        "for $n : 0..2 { print($n); } @m[1] = 2; for $kv : @m { print($kv); } clear(@m);",
        "0\n1\n(1, 2)\n",
    ),
    "settings": (
        "print((config().max_strlen, config().stack_mode, config().cpp_demangle));",
        "(1024, bpftrace, true)\n",
    ),
    "buffers of arrays": (
        (
            "$a = (uint8[4])0x41424344; print((buf($a), buf($a, 2), buf((uint16[2])0x41424344)));"
            ' $s = "abc"; print((buf($s), buf($s, 2), buf("a\\0b", 3)));'
        ),
        "(DCBA, DC, DCBA)\n(abc, ab, a\\x00b)\n",
    ),
    "addresses": (
        (
            "$p = (struct list_head *)5000; $t = container_of($p, struct task_struct, tasks.next);"
            " $o = offsetof(struct task_struct, tasks.next);"
            " print(((uint64)$t + $o, is_err(-5), is_err(5), ksym(0), usym(0), ksym(1)));"
        ),
        "(5000, true, false, 0, 0, 0x1)\n",
    ),
    "stacks": ("print((len(kstack) > 0, len(kstack(1))));", "(true, 1)\n"),
    "the addresses of a map and a key": (
        "@m[1] = 5; $k = 1; print(__has_key((void *)&@m, (void *)&$k)); clear(@m);",
        "true\n",
    ),
    "the system": (
        (
            'print((cgroupid("/") > 0, kfunc_exist("no_such_function"),'
            ' kfunc_allowed("bpf_task_from_pid")));'
        ),
        "(true, false, false)\n",
    ),
}


@pytest.mark.parametrize("name", _BODIES)
def test_what_functions_return(run: Run, name: str) -> None:
    body, printed = _BODIES[name]
    assert run(f"BEGIN {{ {body} exit(); }}") == printed


# Patterns, and texts that some of them match. fnmatch has the same rules but the empty class.
_GLOBS = (
    *("", "*", "**", "?", "a", "a*", "*a", "*.c", "a?c", "*b*d", "[a-c]?", "[!a-c]*", "[]a]b"),
    *("*[0-9]", "[a-]*", "*é", "a" * 63, f"*{'?' * 63}", "x*[!x]*x", "[!a]"),
)
_TEXTS = ("", "a", "abc", "main.c", "abbdd", "z1", "]b", "-x", "caf\xe9", "a" * 63, "xxax", "xxxx")


def test_patterns_that_match(run: Run) -> None:
    cases = [(text, pattern) for text in _TEXTS for pattern in _GLOBS]
    body = " ".join(f'print(globmatch("{text}", "{pattern}"));' for text, pattern in cases)
    printed = run(f"config = {{ on_stack_limit = 0 }} BEGIN {{ {body} exit(); }}").splitlines()
    wanted = [fnmatch.fnmatchcase(text, pattern) for text, pattern in cases]
    found = dict(zip(cases, printed, strict=True))
    assert found == {case: str(one).lower() for case, one in zip(cases, wanted, strict=True)}
    assert True in wanted
    assert False in wanted


def test_a_pattern_for_a_text_of_the_kernel(run: Run) -> None:
    text = 'print((globmatch(comm, "*"), globmatch(comm, "?*"), globmatch(comm, "*/*")));'
    assert run(f"BEGIN {{ {text} exit(); }}") == "(true, true, false)\n"


_REFUSED = {
    'print(globmatch("a", comm));': "the pattern of globmatch(): expected a constant string",
    'print(globmatch("a", "[a"));': "the pattern of globmatch(): a class has no ']' at its end",
    'print(globmatch("a", "[b-a]"));': "the pattern of globmatch(): the range b-a is empty",
    f'print(globmatch("a", "{"a" * 64}"));': "globmatch(): a pattern has 63 characters at most",
    'print(globmatch(1, "a"));': "globmatch() takes a string, not int8",
    'static_assert(1 == 2, "one is not two");': "one is not two",
    'fail("%s: %d", "found", $# + 2);': "found: 2",
    'if ($# == 0) { fail("no"); }': ":1:24: no",
    'fail("%d", pid);': "fail(): expected a constant number",
    '$s = "a"; print(str_concat($s, 1));': "str_concat() takes a string, not int8",
    '@s = "a"; @s = str_concat(@s, "b");': "a value of a map or a variable is made of itself",
    "print(strstr(1, 2));": "strstr() takes a string, not int8",
    "assert_str(1);": "assert_str() takes a string, not int8",
    'print(memcmp("a", "b", pid));': "the length of memcmp(): expected a constant number",
    'print(memcmp("a", 1, 1));': "memcmp() compares bytes, not int8",
    'print(memcmp("a", "b", 10000));': "memcmp() compares 0 to 1024 bytes",
    "@m[1] = 1; print(find(@m, 1, $v));": "$v is not there yet: let $v;",
    "@m[1] = 1; print(find(@m, 1, 1));": "find() takes a map, a key and a variable",
    "@m[1] = 1; print(delete(@m[1], @m[2]));": "delete() of several keys has no value",
    'print(cgroupid("/no/such"));': "cgroupid(): /no/such: No such file or directory",
    "print(pid(other));": "pid() takes curr_ns or init",
    "print(ctx);": "ctx: begin has no context of a probe",
    'print(uaddr("x"));': "uaddr() is of programs: begin is no probe of one",
    'print(percpu_kaddr("no_such"));': "Failed to resolve kernel symbol: no_such",
    "print(container_of(1, 2, 3));": "container_of() takes an address, a type and a member",
    'print(len("a"));': "len() takes a map, kstack or ustack, not string[2]",
    "print(__has_key(1, 2));": "__has_key() takes the addresses of a map and of a variable",
    "unwatch(1);": "unwatch(): watchpoints here end with the program",
    "print(typeinfo(1));": "typeinfo is an experiment of bpftrace",
    "print(is_str());": "is_str() takes 1 argument, 0 given",
    'print(comm("a"));': "comm(): expected a number, found string[2]",
    "print(comm(1, 2));": "comm() takes 0 to 1 argument",
    "print(__NR_no_such);": "unknown name '__NR_no_such'",
    'printf("%gr", "a");': "%gr does not go with string[2]",
    'printf("%s", macaddr((uint8[4])1));': "macaddr() takes an array of 6 bytes",
}


@pytest.mark.parametrize("body", _REFUSED)
def test_what_is_refused(run: Run, body: str) -> None:
    with pytest.raises(LanguageError) as caught:
        run(f"BEGIN {{ {body} exit(); }}")
    assert _REFUSED[body] in str(caught.value)


@pytest.mark.parametrize("call", ["signal(65)", "signal(0)", "signal_thread(-1)"])
def test_numbers_that_are_no_signals(run: Run, call: str) -> None:
    with pytest.raises(LanguageError, match="signals are numbers from 1 to 64"):
        run(f"BEGIN {{ {call}; exit(); }}", unsafe=True)


def test_a_failed_assertion_ends_the_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    text = 'BEGIN { $n = 1; assert($n == 2, "not two"); print(1); } END { print("end"); }'
    assert run(text, code=1) == "end\n"
    assert "-e:1:17: ERROR: assert failed: not two" in capsys.readouterr().err


def test_messages_name_their_places(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    text = 'BEGIN { errorf("%d%%", 5);\n warnf("careful"); exit(); }'
    assert run(text) == ""
    said = capsys.readouterr().err
    assert "-e:1:9: ERROR: 5%" in said
    assert "-e:2:2: WARNING: careful" in said
    assert run(text, no_warnings=True) == ""
    said = capsys.readouterr().err
    assert "ERROR: 5%" in said
    assert "careful" not in said


def test_strings_that_are_cut_end_with_a_trailer(run: Run) -> None:
    settings = 'config = { max_strlen = 9; str_trunc_trailer = "+" }'
    reads = "$s = str(args.filename); @m[$s] = $s; print((sizeof($s), strlen($s)));"
    lengths = (
        "$n = 5; print((str(args.filename, 5), str(args.filename, $n), str(args.filename, 9)));"
    )
    probe = "t:syscalls:sys_enter_execve /pid == cpid/"
    text = f'{settings} {probe} {{ {reads} {lengths} printf("%s|%11s\\n", $s, $s); exit(); }}'
    printed = run(text, command="/usr/bin/true")
    assert (
        printed
        == "(9, 9)\n(/usr, /usr, /usr/bin)\n/usr/bin/+| /usr/bin/+\n@m[/usr/bin/+]: /usr/bin/+\n"
    )


def test_a_signal_to_the_thread(run: Run) -> None:
    code = (
        "import os, signal; signal.signal(signal.SIGUSR1, lambda *_: print('got it'));os.getppid()"
    )
    text = 't:syscalls:sys_enter_getppid /pid == cpid/ { signal_thread("SIGUSR1"); exit(); }'
    with pytest.raises(LanguageError, match="--unsafe"):
        run(text)
    command = f'{sys.executable} -c "{code}"'
    assert run(text, unsafe=True, command=command) == ""


_WRITTEN = """
#include <stdio.h>
__attribute__((noinline)) int work(char *text, int *number) {
    __asm__ volatile("" ::: "memory"); puts(text); return printf("%d\\n", *number);
}
int main(void) { char text[8] = "abcdefg"; int number = 5; return work(text, &number) != 6; }
"""


def test_bytes_are_written_into_the_process(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "work"
    (tmp_path / "work.c").write_text(_WRITTEN)
    command = ("gcc", "-O1", "-o", program, tmp_path / "work.c")
    subprocess.run(command, check=True, capture_output=True)
    writes = (
        'write_user(arg0, "xyz", 3), write_user(arg1, &$n, sizeof($n)), write_user(0, "x", 1),'
        ' write_user(arg0, "xyz", $m), write_user(arg0, "xyz", $m - 6),'
        " write_user(arg0 + 5, $s, $m - 4)"
    )
    values = f'$n = (int32)12345; $m = 6; $s = "uvwxyz"; print(({writes})); exit();'
    text = f"uprobe:{program}:work {{ {values} }}"
    with pytest.raises(LanguageError, match=r"write_user\(\) changes the system: allow"):
        run(text)
    output = tmp_path / "printed"
    shell = f"/bin/sh -c '{program} > {output}'"
    assert run(text, unsafe=True, command=shell) == "(true, true, false, false, false, true)\n"
    assert output.read_text() == "xyzdeuv\n12345\n"


_NOT_WRITTEN = {
    'write_user(1, "abc", 5);': "write_user.. writes 1 to 4 bytes here, not 5",
    "write_user(1, 5, 1);": "takes bytes or their address: &.x of a variable, not int",
    "$n = 1; write_user(1, &$n, 0);": "writes 1 to 1025 bytes here, not 0",
    "$n = 1; write_user(1, &$n, pid);": "the length of what is at an address is a constant",
    "write_user(1, 2);": "write_user.. takes 3 arguments, 2 given",
}


@pytest.mark.parametrize("text", _NOT_WRITTEN)
def test_what_cannot_be_written_is_refused(run: Run, text: str) -> None:
    with pytest.raises(LanguageError, match=_NOT_WRITTEN[text]):
        run(f"BEGIN {{ {text} }}", unsafe=True)


_C = """
#include <stdint.h>
uint32_t one = 1; static volatile uint8_t two = 2; uint64_t many[2] = {3, 4};
__attribute__((noinline)) int work(int number) { one += number; return one + two + many[0]; }
int main(void) { return work(4) != 10; }
"""


@pytest.mark.parametrize("options", [("-pie",), ("-no-pie",), ("-g",)])
def test_addresses_of_variables(run: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    program = tmp_path / "work"
    (tmp_path / "work.c").write_text(_C)
    command = ("gcc", "-O1", *options, "-o", program, tmp_path / "work.c")
    subprocess.run(command, check=True, capture_output=True)
    values = '*uaddr("one"), *uaddr("two"), *(uint64 *)(uaddr("many") + 1), len(ustack(1))'
    text = f"uprobe:{program}:work {{ print(({values})); exit(); }}"
    assert run(text, command=str(program)) == "(1, 2, 4, 1)\n"
    gc.collect()  # debug information closes its files when it is freed
    if options == ("-pie",):
        missing = f'uprobe:{program}:work {{ print(*uaddr("none")); }}'
        place = len(missing) - len('uaddr("none")); }')
        with pytest.raises(ProgramError, match="its file has no variable 'none'") as caught:
            run(missing, command=str(program))
        assert caught.value.column == place
        members = f"BEGIN {{ }} uprobe:{program}:work {{ print(args.no); }}"
        with pytest.raises(ProgramError, match="no debug information") as caught:
            run(members, command=str(program))
        assert members[caught.value.column :].startswith("args.no")


@pytest.mark.parametrize("options", [("-pie",), ("-no-pie",)])
def test_addresses_of_variables_at_returns(
    run: Run, tmp_path: Path, options: tuple[str, ...]
) -> None:
    program = tmp_path / "work"
    (tmp_path / "work.c").write_text(_C)
    command = ("gcc", "-O1", *options, "-o", program, tmp_path / "work.c")
    subprocess.run(command, check=True, capture_output=True)
    values = '*uaddr("one"), *uaddr("two"), *(uint64 *)(uaddr("many") + 1)'
    text = f"uretprobe:{program}:work {{ print(({values})); exit(); }}"
    assert run(text, command=str(program)) == "(5, 2, 4)\n"


def test_the_context_has_the_registers(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "work"
    (tmp_path / "work.c").write_text(_C)
    subprocess.run(("gcc", "-O1", "-o", program, tmp_path / "work.c"), check=True)
    offset = instruction_pointer(KERNEL_MACHINE)
    text = (
        f"struct saved {{ uint8 before[{offset}]; unsigned long ip; }} uprobe:{program}:work"
        ' { print(((struct saved *)ctx).ip == reg("ip")); exit(); }'
    )
    assert run(text, command=str(program)) == "true\n"


def test_debugf_writes_into_the_kernels_trace(run: Run) -> None:
    name = f"debugf {os.getpid()}"
    text = f'BEGIN {{ $s = "text"; debugf("{name} %s %d %x", $s, -1, 255); exit(); }}'
    assert run(text) == ""
    assert f"{name} text -1 ff" in (tracefs() / "trace").read_text()


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ('debugf("%5d", 1)', "the kernel prints numbers as %d, %u and %x, and %s and %p, not %5d"),
        ('debugf("%d%d%d%d", 1, 2, 3, 4)', "the kernel prints at most 3 values, not 4"),
        ('debugf("%s", kstack)', "debugf() prints numbers and strings, not kstack"),
    ],
)
def test_what_the_kernel_cannot_print(run: Run, call: str, reason: str) -> None:
    with pytest.raises(LanguageError, match=re.escape(reason)):
        run(f"BEGIN {{ {call}; exit(); }}")


def test_raw_stacks_are_not_indented(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "work"
    (tmp_path / "work.c").write_text(_C)
    subprocess.run(("gcc", "-O1", "-o", program, tmp_path / "work.c"), check=True)
    text = f"uprobe:{program}:work {{ print(ustack(raw, 1)); exit(); }}"
    assert re.fullmatch(r"\n[0-9a-f]+\n\n", run(text, command=str(program)))


def test_headers_of_the_command_line(run: Run, tmp_path: Path) -> None:
    header = tmp_path / "known.h"
    header.write_text("#define KNOWN 2\n")
    text = "BEGIN { print(strerror(KNOWN)); exit(); }"
    assert run(text, headers=(str(header),)) == "No such file or directory\n"


def test_system_calls_have_names(run: Run) -> None:
    text = "rt:sys_enter /pid == cpid/ { @[syscall_name(arg1)] = 1; }"
    printed = run(text, command=f"{sys.executable} -c pass")
    assert "@[execve]: 1\n" in printed
    assert "@[exit_group]: 1\n" in printed


def test_settings_that_bpftrace_has_dropped_change_nothing(run: Run) -> None:
    settings = "unstable_map_decl = enable; unstable_addr = warn; BPFTRACE_UNSTABLE_TSERIES=enable"
    assert run(f"config = {{ {settings} }} BEGIN {{ print(1); exit(); }}") == "1\n"


def test_keys_that_are_long(run: Run) -> None:
    text = 'BEGIN { @m[str(kptr(0))] = 1; print(@m[""]); clear(@m); exit(); }'
    try:
        assert run(text) == "1\n"
    except ProgramError as err:
        assert "the keys of @m have 1032 bytes, this kernel takes 512" in str(err)  # noqa: PT017


def test_programs_import_others(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "100%.bt").write_text(
        "struct pair { int a; int b; }\nlet @pairs = lruhash(5);\n"
        "macro twice(x, @m) { @m[1] = x; x * 2 }\n"
        'begin { print("imported"); errorf("%d%%", 5); $x = 1; $longer = "text"; }'
    )
    text = (
        f'import "{tmp_path}/100%.bt"; begin {{ $x = "text"; print((sizeof(struct pair),'
        " twice(5, @pairs), $x)); delete(@pairs, 1); print(len(@pairs)); exit(); }"
    )
    assert run(text) == "imported\n(8, 10, text)\n0\n"
    assert f"{tmp_path}/100%.bt:4:28: ERROR: 5%" in capsys.readouterr().err
    with pytest.raises(ProgramError, match="import stands before the probes"):
        run('begin { import "x.bt"; }')


def test_names_of_other_processes(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen([need_program("cat", "coreutils")], stdin=subprocess.PIPE) as cat:
        text = (
            "macro name($n) { let $node = 1; comm($n) }"
            ' BEGIN { $pid = $1; print((comm($1), comm($pid), comm($1 + 0), comm($1) == "cat"));'
            " @m[comm($1)] = name($pid); print((comm(0), comm(4194303), comm(-1), comm(1 << 40)));"
            " exit(); }"
        )
        printed = run(text, str(cat.pid))
        assert printed == "(cat, cat, cat, true)\n(N/A, N/A, N/A, N/A)\n@m[cat]: cat\n"
        assert cat.stdin is not None
        cat.stdin.close()
    assert capfd.readouterr().err == ""


def test_names_of_processes_of_a_namespace_of_process_ids() -> None:
    unshare = (need_program("unshare", "util-linux"), "-p", "-f", "--mount-proc")
    text = "BEGIN { print((comm(1) == comm, comm(9999))); exit(); }"
    command = (*unshare, sys.executable, "-m", "usdt", "run", "-q", "-e", text)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(true, N/A)"


@pytest.mark.skipif(KERNEL_MACHINE != "x86_64", reason="usermode of samples is known on x86-64")
@pytest.mark.parametrize(
    ("code", "mode"),
    [("while True: pass", 1), ("f = open('/dev/zero', 'rb', 0)\nwhile True: f.read(1 << 24)", 0)],
)
def test_samples_know_whether_a_process_is_in_user_mode(
    run: Run, tmp_path: Path, code: str, mode: int
) -> None:
    (tmp_path / "busy.py").write_text(code)
    text = f"profile:hz:999 {{ if (usermode == {mode}) {{ print(usermode); exit(); }} }}"
    assert run(text, command=f"{sys.executable} {tmp_path}/busy.py") == f"{mode}\n"
