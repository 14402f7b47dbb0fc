"""``usdt run``: programs in bpftrace's language, on the running kernel."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from fixtures import build
from program_runs import VALUES

from usdt.base.errors import ProbeNotFound, ProgramError, TracingError
from usdt.engine.cli.programs.run import run_program

if TYPE_CHECKING:
    from pathlib import Path

    from program_runs import Run

# What stands between BEGIN { and exit(); } → what it prints
_BODIES = {
    "printf": (
        'printf("%d %5d|%-5d|%05d %x %#x %c %s\\n", 1, 2, 3, 4, 255, 255, 65, "text");',
        "1     2|3    |00004 ff 0xff A text\n",
    ),
    "unsigned": (
        'printf("%u %d %lld %llu\\n", 4294967295, -1, -1, -1);',
        "4294967295 -1 -1 18446744073709551615\n",
    ),
    "arithmetic": (
        "print(7 / 2); print(7 % 4); print(1 << 40); print(-8 >> 1); print(6 & 3 | 8);",
        "3\n3\n1099511627776\n-4\n10\n",
    ),
    "precedence": ("print(2 + 3 * 4 == 14 && 1 || 0); print(!0); print(~0);", "true\ntrue\n-1\n"),
    "casts": (
        "print((uint8)257); print((int8)255); print((uint16)-1); print((int32)-1);",
        "1\n-1\n65535\n-1\n",
    ),
    "strings": (
        (
            '$s = "abc"; print($s == "abc"); print($s != "abd"); print($s == "abcd");'
            ' print(strncmp($s, "abd", 2));'
        ),
        "true\ntrue\nfalse\n0\n",
    ),
    "ternary": ('$x = 3; print($x > 2 ? "more" : "less"); print($x > 5 ? 1 : 2);', "more\n2\n"),
    "tuples": (
        '$t = (1, "two", (3, 4)); print($t); print($t.1); print($t.2.1);',
        "(1, two, (3, 4))\ntwo\n4\n",
    ),
    "records": ('$r = (x=1, y="two"); print($r.y); print($r.x);', "two\n1\n"),
    "if": (
        "$x = 2; if ($x == 1) { print(1); } else if ($x == 2) { print(2); } else { print(3); }",
        "2\n",
    ),
    "if as a value": (
        (
            "$x = 1; print(if ($x) { if ($x > 1) { 1 } else { 2 } } else { 3 });"
            ' print(if ($x == 2) { printf("no\\n"); "two" } else { printf("yes\\n"); "other" });'
        ),
        "2\nyes\nother\n",
    ),
    "types that are found later": (
        (
            '$q = @w; @copy = $q; if (@last != "b") { @last = "b"; } @n = @n + 1; @w = "text";'
            ' for ($kv : @k) { @of[$kv.1] = $kv.0; } @k["x"] = "y";'
            " print((@copy, @last, @n));"
            " clear(@w); clear(@n); clear(@copy); clear(@last); clear(@k);"
        ),
        "(, b, 1)\n",
    ),
    "scopes": ("$x = 1; if (1) { $x = 2; $y = 3; } print($x);", "2\n"),
    "increments": (
        (
            "$x = 1; print($x++); print(++$x); $x--; print($x); @m = 5; print(@m++); print(@m);"
            " clear(@m);"
        ),
        "1\n3\n2\n5\n@m: 6\n",
    ),
    "compound": (
        "$x = 6; $x += 2; $x *= 3; $x -= 4; $x /= 5; $x <<= 2; $x |= 1; print($x);",
        "17\n",
    ),
    "left to right": (
        (
            "$n = 1; print($n + $n++); print($n - ++$n); $n += $n++; print($n);"
            " print((uint8)1 - $n++);"
        ),
        "2\n-1\n6\n-5\n",
    ),
    "a tuple of its own parts": (
        '$p = (1, "a", 2); $p = ($p.2, "b", $p.0); print($p);',
        "(2, b, 1)\n",
    ),
    "a divisor of 0": (
        "$z = 0; print(5 + 1 / $z); print(7 % $z); if (3 / $z == 1) { print(1); }",
        "6\n1\n1\n",
    ),
    "a constant divisor of 0": ("$n = 5; print($n / 0); print(2 + $n % 0);", "1\n3\n"),
    "least and greatest of nothing": (
        (
            "@a[1] = min(5); @b[1] = max(5); print((int64)@a[2]); print((int64)@b[2]); zero(@a);"
            " print(@a); clear(@a); clear(@b);"
        ),
        "0\n0\n@a[1]: 0\n\n",
    ),
    "a truth that is computed before": (
        "@a[1] = 5; print((@a[1] == 5 || @a[2] == 1) - 2); clear(@a);",
        "-1\n",
    ),
    "unreadable numbers are 0": (
        '$p = (uint64 *)8; print(*$p + 5); if (*$p == 0) { print("null"); }',
        "5\nnull\n",
    ),
    "unsigned beside a negative constant": (
        "$n = (uint64)5; print($n > -1); print($n - 6);",
        "false\n-1\n",
    ),
    "unroll": ("$i = 0; unroll(3) { $i += 2; } print($i);", "6\n"),
    "keys": (
        '@a[1, "x"] = 5; print(@a[1, "x"]); print(has_key(@a, (2, "x"))); clear(@a);',
        "5\nfalse\n",
    ),
    "deleted": ("@a[1] = 5; @a[2] = 6; delete(@a[1]); print(@a); clear(@a);", "@a[2]: 6\n\n"),
    "errors": ('printf("%s\\n", strerror(2));', "No such file or directory\n"),
    "addresses": ('printf("%s\\n", ntop(0x0100007f));', "127.0.0.1\n"),
    "a variable behind its block": (
        (
            "if (pid) { $x = 1; $s = comm; } else { $x = 2; } print($x + 1);"
            ' if (pid == 0) { $n = 5; $t = "text"; } printf("%d %s|%d\\n", $n, $t, $s == comm);'
        ),
        "2\n0 |1\n",
    ),
    "bswap": (
        (
            'printf("%x %x %x %lx\\n", bswap((uint8)0x12), bswap((uint16)0x1234),'
            " bswap((uint32)0x12345678), bswap((uint64)0x0102030405060708));"
            " print(bswap((uint16)1) - 257); print(bswap((uint32)1) > (int64)-1);"
        ),
        "12 3412 78563412 807060504030201\n-1\ntrue\n",
    ),
    "aggregates": (
        (
            "@c = count(); @c = count(); @a = avg(4); @a = avg(7); @n = min(-3); @n = min(5);"
            " @x = max(7); print((@c, @a, @n, @x)); if (@c == 2) { print(1); }"
            " clear(@a); clear(@n); clear(@x);"
        ),
        "(2, 5, -3, 7)\n1\n@c: 2\n",
    ),
    "lengths": (
        '@h[1] = 1; @h[2] = 2; print(len(@h)); print(strlen("abcd")); clear(@h);',
        "2\n4\n",
    ),
    "parts of strings": (
        '$s = "hello world"; print(strcontains($s, "lo w")); print(strcontains($s, "x"));',
        "true\nfalse\n",
    ),
    "constants": ('printf("%d %d %d", AF_INET6, TASK_RUNNING, ENOENT);', "10 0 2"),
    "probe": ("print(probe);", "begin\n"),
}


# The same with the kernel's types.
_TYPED = {
    "sizeof": ("print(sizeof(uint16)); print(sizeof(struct task_struct) > 100);", "2\ntrue\n"),
    "enumerators": ("print(BPF_MAP_TYPE_ARRAY);", "BPF_MAP_TYPE_ARRAY\n"),
    "members": (
        (
            "print(curtask->pid == tid); $t = (struct task_struct *)curtask;"
            " print($t->tgid == pid); print(str($t->comm) == comm);"
        ),
        "true\ntrue\ntrue\n",
    ),
}


@pytest.mark.usefixtures("vmlinux_btf")
@pytest.mark.parametrize("name", _TYPED)
def test_the_types_of_the_kernel(run: Run, name: str) -> None:
    body, printed = _TYPED[name]
    assert run(f"BEGIN {{ {body} exit(); }}") == printed


def test_a_variable_holds_addresses_of_both_families(run: Run) -> None:
    eight = "((struct in6_addr *)curtask)->in6_u.u6_addr8"
    text = f"$a = ntop(0); print($a); $a = ntop({eight}); print($a); $k = {eight};"
    text += " @[ntop(2, 0x0100007f)] = 1; @k = $k; print(ntop($k) == $a); print(ntop(@k) == $a);"
    first, second, *rest = run(f"BEGIN {{ {text} exit(); }}").split("\n")
    assert (first, ":" in second) == ("0.0.0.0", True)
    assert rest[:2] == ["true", "true"]
    assert "@[127.0.0.1]: 1" in rest


@pytest.mark.parametrize("name", _BODIES)
def test_what_a_body_prints(run: Run, name: str) -> None:
    body, printed = _BODIES[name]
    assert run(f"BEGIN {{ {body} exit(); }}") == printed


# The same with loops, which are functions of their own.
_LOOPS = {
    "while": (
        (
            "$i = 0; while ($i < 5) { $i++; if ($i == 2) { continue; } if ($i == 4) { break; }"
            ' printf("%d ", $i); }'
        ),
        "1 3 ",
    ),
    "range": ('for ($i : 2..5) { printf("%d ", $i); }', "2 3 4 "),
    "nested": (
        'for ($i : 0..2) { for ($j : 0..2) { $k = $i * 10 + $j; printf("%d ", $k); } }',
        "0 1 10 11 ",
    ),
    "outer variable": ('$sum = 0; for ($i : 0..5) { $sum += $i; } printf("%d", $sum);', "10"),
    "return": (
        'for ($i : 0..5) { if ($i == 1) { print("end"); exit(); } print("go"); } print("no");',
        "go\nend\n",
    ),
    "map": ('@m[7] = 8; for ($kv : @m) { printf("%d %d", $kv.0, $kv.1); } clear(@m);', "7 8"),
    "map of counts": (
        '@m[1, "x"] = count(); @m[1, "x"] = count(); for ($k : @m) { print($k); } clear(@m);',
        "((1, x), 2)\n",
    ),
    "map of averages": ("@m[3] = avg(4); for ($kv : @m) { print($kv); } clear(@m);", "(3, 4)\n"),
    "strings": (
        '$s = "abcdefghij"; for ($i : 0..2) { printf("%s%d", $s, $i); }',
        "abcdefghij0abcdefghij1",
    ),
}


@pytest.mark.parametrize("name", _LOOPS)
def test_loops(run: Run, name: str) -> None:
    body, printed = _LOOPS[name]
    assert run(f"BEGIN {{ {body} exit(); }}") == printed


def test_aggregations_of_a_traced_program(run: Run) -> None:
    loop = build("default", "loop")
    text = (
        f"usdt:{loop}:loop:hit {{ @c = count(); @s = sum(arg0); @a = avg(arg0); @mn = min(arg0);"
        " @mx = max(arg0); @st = stats(arg0); @by[arg0 % 2] = count(); }"
    )
    out = run(text, command=f"{loop} -q -n 10")
    assert [line for line in out.splitlines() if line] == [
        "@a: 4",
        "@by[0]: 5",
        "@by[1]: 5",
        "@c: 10",
        "@mn: 0",
        "@mx: 9",
        "@s: 45",
        "@st: count 10, average 4, total 45",
    ]


def test_histograms(run: Run) -> None:
    loop = build("default", "loop")
    text = f"usdt:{loop}:loop:hit {{ @h = hist(arg0); @l = lhist(arg0, 2, 8, 3); }}"
    assert run(text, command=f"{loop} -q -n 10") == (
        "@h:\n"
        "[0]                    1 |@@@@@@@@@@@@@                                       |\n"
        "[1]                    1 |@@@@@@@@@@@@@                                       |\n"
        "[2, 4)                 2 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |\n"
        "[4, 8)                 4 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n"
        "[8, 16)                2 |@@@@@@@@@@@@@@@@@@@@@@@@@@                          |\n"
        "\n@l:\n"
        "(..., 2)               2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@                  |\n"
        "[2, 5)                 3 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n"
        "[5, 8)                 3 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|\n"
        "[8, ...)               2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@                  |\n"
        "\n"
    )


def test_the_time_between_two_probes_of_a_thread(run: Run) -> None:
    text = (
        "tracepoint:syscalls:sys_enter_openat /pid == cpid/ { @start[tid] = nsecs; }"
        "tracepoint:syscalls:sys_exit_openat /@start[tid]/"
        "{ @took[comm] = count(); @positive = min(nsecs - @start[tid]); delete(@start[tid]); }"
    )
    out = run(text, command="cat /etc/hostname")
    lines = dict(line.split(": ") for line in out.splitlines() if line)
    assert int(lines["@took[cat]"]) >= 1
    assert int(lines["@positive"]) > 0


def test_end_runs_when_nothing_is_attached_any_more(run: Run) -> None:
    assert run('BEGIN { @x = 1; exit(3); } END { printf("%d", @x); clear(@x); }', code=3) == "1"


def test_declared_maps_and_settings(run: Run) -> None:
    text = (
        "config = { print_maps_on_exit = false; max_map_keys = 1 } let @l = lruhash(1);"
        "BEGIN { @l[1] = 1; @l[2] = 2; @m[1] = 1; print(@l); print(@m); exit(); }"
    )
    assert run(text) == "@l[2]: 2\n\n@m[1]: 1\n\n"


_DEFINED = (
    "enum color { RED, GREEN = 5, BLUE } typedef unsigned short tiny;"
    "struct inner { char c; tiny s; };"
    "struct outer { int a; struct inner in[2]; uint64_t x : 3; uint64_t y : 5; char *name; };"
    "struct packed { char c; int i; } __attribute__((packed)); union both { int i; char c[9]; };"
)


def test_types_of_the_program_are_laid_out_as_in_c(run: Run) -> None:
    text = (
        f"{_DEFINED} BEGIN {{ print((sizeof(struct inner), sizeof(struct outer)));"
        " print((sizeof(struct packed), sizeof(union both))); print((RED, GREEN, BLUE));"
        " print((offsetof(struct outer, in), offsetof(struct outer, name))); exit(); }"
    )
    assert run(text) == "(4, 24)\n(5, 12)\n(RED, GREEN, BLUE)\n(4, 16)\n"


_C = """
#include <sys/sdt.h>
struct inner { char c; unsigned short s; };
struct outer { int a; struct inner in[2]; unsigned long x : 3, y : 5; char *name; };
int main(void)
{
    char name[] = "a name";
    struct outer one = {-42, {{'a', 1}, {'b', 2}}, 5, 17, name};
    DTRACE_PROBE1(defined, hit, &one);
    return 0;
}
"""


def test_memory_of_a_program_by_its_own_types(run: Run, tmp_path: Path) -> None:
    (tmp_path / "defined.c").write_text(_C)
    words = ("gcc", "-o", tmp_path / "defined", tmp_path / "defined.c")
    subprocess.run(words, check=True)
    text = (
        f"{_DEFINED} usdt:{tmp_path}/defined:defined:hit {{ $o = (struct outer *)arg0;"
        ' printf("%d %c %d %d %d %s\\n", $o->a, $o->in[1].c, $o->in[1].s, $o->x, $o->y,'
        " str($o->name)); }"
    )
    assert run(text, command=str(tmp_path / "defined")) == "-42 b 2 5 17 a name\n"


def test_macros(run: Run) -> None:
    text = "macro twice(x) { x + x } BEGIN { print(twice(4) * 2); exit(); }"
    assert run(text) == "16\n"


def test_words_of_a_command_are_joined(run: Run) -> None:
    text = "tracepoint:syscalls:sys_enter_execve { join(args.argv); }"
    out = run(text, command="sh -c 'cat /dev/null a b 2>/dev/null; true'")
    assert "cat /dev/null a b\n" in out


def test_timers_and_samples(run: Run) -> None:
    text = "profile:hz:200 { @n = count(); } i:ms:100 { @i++; if (@i == 3) { exit(); } }"
    lines = dict(line.split(": ") for line in run(text).splitlines() if line)
    assert int(lines["@i"]) >= 3
    assert int(lines["@n"]) >= 1


def test_arguments_of_the_script(run: Run) -> None:
    assert run('BEGIN { printf("%d %s %d", $1, str($2), $#); exit(); }', "7", "word") == "7 word 2"


# What stands in print() → the words, and what is printed
_ARGUMENTS = {
    "$1": {"0775": "509", "0x1F": "31", "word": "word", "08": "08"},
    "str($1)": {"1": "1", "0775": "0775", "": ""},
    "str($1 + 2)": {"word": "rd", "0x1F": "1F", "w": ""},
    "str($1, 2)": {"word": "wo", "w": "w"},
    "$1 + $#": {"010": "9"},
}


@pytest.mark.parametrize("written", _ARGUMENTS)
def test_arguments_are_numbers_or_text(run: Run, written: str) -> None:
    for word, expected in _ARGUMENTS[written].items():
        assert run(f"BEGIN {{ print({written}); exit(); }}", word) == expected + "\n"


_ZERO = (
    "WARNING: Divide or modulo by 0 detected. This can lead to unexpected results."
    " 1 is being used as the result."
)
_FULL = (
    "WARNING: Map full; can't update element: @a has 1 entries, let @a = percpuhash(8);"
    " gives it more"
)
_WARNED = {
    "BEGIN { $z = 0; print(6 / $z); $z /= $z; print($z); exit(); }": (
        "1\n1\n",
        [f"-e:1:23: {_ZERO}", f"-e:1:32: {_ZERO}"],
    ),
    "BEGIN { $z = 2; print(6 / $z); print(7 % 4); exit(); }": ("3\n3\n", []),
    "let @a = hash(2); let @b = hash(2); BEGIN { print(len(@a)); exit(); }": (
        "0\n",
        ["-e:1:19: WARNING: Unused map: @b"],
    ),
    "let @a = percpuhash(1); BEGIN { @a[1] = count(); @a[2] = count(); @n = 1; exit(); }": (
        "@a[1]: 1\n@n: 1\n",
        ["1 event or map update was lost, a buffer or a map was full: begin (1)", _FULL],
    ),
}


@pytest.mark.parametrize("text", _WARNED)
def test_warnings(run: Run, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed, warnings = _WARNED[text]
    assert run(text) == printed
    assert capsys.readouterr().err.splitlines() == warnings


def test_a_message_names_the_probes_that_lost_the_most(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    probes = " ".join(f"interval:ms:{each} {{ @a[{each}] = 1; }}" for each in range(1, 13))
    text = f"let @a = hash(1); {probes} interval:ms:300 {{ exit(); }}"
    assert re.fullmatch(r"@a\[[0-9]+\]: 1\n", run(text))
    message = capsys.readouterr().err.splitlines()[0].rpartition("full: ")[2]
    lost = [int(number) for number in re.findall(r" \(([0-9]+)\)", message)]
    assert lost == sorted(lost, reverse=True)
    assert (len(lost), message.rpartition(" and ")[2]) == (8, "3 more probes")


def test_maps_without_values_are_empty(run: Run) -> None:
    body = "print(len(@b)); clear(@b); print(@b); print(has_key(@c, 1)); delete(@c, 1);"
    assert run(f"BEGIN {{ {body} for ($x : @k) {{ print(1); }} exit(); }}") == "0\nfalse\n"


_REFUSED = {
    "BEGIN { $x = 1; $y = $x + ; }": "",
    'BEGIN { printf("%d", "text"); }': "%d does not go with string[5]",
    'BEGIN { printf("%d %d", 1); }': "the format has 2 conversions for 1 value",
    "BEGIN { print(if (1) { 2 }); }": "this if has no value: it has no else",
    "BEGIN { @a = @b; @b = @a; $x = @nothing + 1; }": "@nothing has no value: nothing is assigned",
    "BEGIN { @a = @c; print($x); @c = 1; }": "$x has no value here: nothing was assigned to it",
    "BEGIN { print($x); }": "$x has no value here: nothing was assigned to it",
    "BEGIN { @x = 1; @x[1] = 2; }": "@x is used without keys elsewhere in the program",
    'BEGIN { @x = 1; @x = "a"; }': "the values of @x: int64 elsewhere, here string[2]",
    "BEGIN { print(nosuchname); }": "unknown name 'nosuchname'",
    "BEGIN { nosuch(1); }": "unknown function 'nosuch'",
    'BEGIN { system("ls"); }': "system() changes the system: allow it with --unsafe",
    "BEGIN { print(retval); }": "begin has no retval: it is no function's return",
    "nosuch:x { }": "'nosuch' is no kind of probe",
    "kr:_raw_spin_lock { }": "kretprobe:_raw_spin_lock can't be used as it might lock up",
    "self:signal:SIGHUP { }": "expected self:signal:SIGUSR1, the only one",
    "BEGIN { print(((struct nosuch *)1)->x); }": "no type 'struct nosuch'",
    "struct a { struct b c; } BEGIN { }": "struct b is not defined before",
    "struct a { int b : 33; } BEGIN { }": "a bit field has 0 to 32 bits here, not 33",
    "struct a { char b[2000000]; } BEGIN { }": "the array is larger than 1 MiB",
    "config = { max_strle = 4 } BEGIN { }": "unknown setting 'max_strle'; did you mean max_strlen?",
    "config = { missing_probes = wrn } BEGIN { }": "missing_probes is one of error, warn, ignore",
    "let @x = heap(4); BEGIN { }": "heap is no kind of map; there are hash, lruhash",
    "BEGIN { @x = hist(1); print(@x + 1); }": "@x holds hist(): it can be printed, not read",
    "BEGIN { @x = lhist(1, 10, 5, 1); }": "lhist() takes a number, MIN < MAX, and a STEP from 1 on",
}


@pytest.mark.parametrize("text", _REFUSED)
def test_what_is_refused_before_anything_is_attached(text: str) -> None:
    with pytest.raises((ProgramError, TracingError)) as caught:
        run_program({**VALUES, "text": text})
    assert isinstance(caught.value, ProgramError)
    assert _REFUSED[text] in str(caught.value)
    assert str(caught.value).startswith("-e:1:")


_ABSENT = "uprobe:libc:no_such_function"
# A program of which a probe does not exist → whether it runs, and whether it says so.
_MISSING_PROBES = {
    f"{_ABSENT}, BEGIN {{ exit(); }}": (True, True),
    f"{_ABSENT} {{ }} BEGIN {{ exit(); }}": (False, True),
    f"config = {{ missing_probes = error }} {_ABSENT}, BEGIN {{ exit(); }}": (False, True),
    f"config = {{ missing_probes = warn }} {_ABSENT} {{ }} BEGIN {{ exit(); }}": (True, True),
    f"config = {{ missing_probes = ignore }} {_ABSENT} {{ }} BEGIN {{ exit(); }}": (True, False),
    f"config = {{ missing_probes = warn }} {_ABSENT} {{ }}": (False, True),
    "t:sched:no_such_event, BEGIN { exit(); }": (True, True),
    "t:sched:no_such_event { } BEGIN { exit(); }": (False, True),
}


@pytest.mark.parametrize("text", _MISSING_PROBES)
def test_a_probe_that_does_not_exist(
    run: Run, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, says = _MISSING_PROBES[text]
    if runs:
        run(text)
        said = capsys.readouterr().err
        assert ("passed over: " in said) == says
    else:
        with pytest.raises(ProbeNotFound) as caught:
            run(text)
        said = str(caught.value)
    assert ("no_such" in said) == says
