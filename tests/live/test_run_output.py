"""What ``usdt run`` prints, beside values: JSON, maps, macros' results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fixtures import build

from usdt.base.errors import ProgramError

if TYPE_CHECKING:
    from program_runs import Run


def test_json(run: Run) -> None:
    text = (
        'BEGIN { printf("hi\\n"); @a[1, "x"] = 5; @h = hist(3); @s = stats(4); print((1, "t"));'
        " print(true); exit(); }"
    )
    found = [json.loads(line) for line in run(text, form="json", quiet=False).splitlines()]
    assert found == [
        {"type": "attached_probes", "count": 1, "data": {"probes": 1}},
        {"type": "printf", "data": "hi\n"},
        {"type": "value", "data": [1, "t"]},
        {"type": "value", "data": True},
        {"type": "map", "data": {"@a": {"1,x": 5}}},
        {"type": "hist", "data": {"@h": [{"min": 2, "max": 3, "count": 1}]}},
        {"type": "stats", "data": {"@s": {"count": 1, "average": 4, "total": 4}}},
    ]


def test_json_is_bpftraces_to_the_byte(run: Run) -> None:
    text = (
        'enum e { A = 3 } BEGIN { print((1, "a", (2, true))); print((x=1, y="s"));'
        " print((enum e)3); @avg = avg(3); @avg = avg(-8); @key[(1, (2, 3)), 4] = 1;"
        " $r = (a=1, b=(c=2)); @rec[$r] = $r; @tuple = (1, 2); @zero = hist(1); zero(@zero);"
        " exit(); }"
    )
    assert run(text, form="json").splitlines() == [
        '{"type": "value", "data": [1,"a",[2,true]]}',
        '{"type": "value", "data": {"x": 1, "y": "s"}}',
        '{"type": "value", "data": 3}',
        '{"type": "stats", "data": {"@avg": -2}}',
        '{"type": "map", "data": {"@key": {"(1,(2,3)),4": 1}}}',
        '{"type": "map", "data": {"@rec": {"{.a=1,.b={.c=2}}": {"a": 1, "b": {"c": 2}}}}}',
        '{"type": "map", "data": {"@tuple": [1,2]}}',
        '{"type": "hist", "data": {"@zero": []}}',
    ]


def test_printed_maps_with_keys_end_with_an_empty_line(run: Run) -> None:
    text = (
        'BEGIN { @a["x"] = avg(10); @a["y"] = avg(25); print(@a, 1, 10); print("then");'
        ' @n = 3; print(@n); print(@a["x"]); clear(@a); clear(@n); exit(); }'
    )
    assert run(text) == "@a[y]: 2\n\nthen\n@n: 3\n10\n"


def test_printed_values_of_maps_are_those_of_the_hit(run: Run) -> None:
    text = (
        'BEGIN { @a[1] = 5; @s[1] = (1, "x"); @c[1] = sum(4); @c[1] = sum(3); @h[1] = stats(2);'
        " print(@a[1]); print(@s[1]); print(@c[1]); print(@h[1]); print(@a[2]); @a[1] = 6;"
        " clear(@a); clear(@s); clear(@c); clear(@h); exit(); }"
    )
    assert run(text) == "5\n(1, x)\n7\n@h[1]: count 1, average 2, total 2\n0\n"


def test_printed_maps_that_were_cleared(run: Run) -> None:
    text = (
        'BEGIN { @n = 5; clear(@n); print(@n); @c = count(); clear(@c); print(@c); @t = (1, "x");'
        " clear(@t); print(@t); @a = avg(3); clear(@a); print(@a); @h = hist(3); clear(@h);"
        " print(@h); exit(); }"
    )
    # A count without keys is there at the end, too.
    assert run(text) == "@n: 0\n@c: 0\n@t: (0, )\n@a: 0\n@c: 0\n"


def test_macros_take_expressions_as_variables(run: Run) -> None:
    text = (
        "macro add($x) { $x + 1 } macro twice($x) { add($x + add(1)) * 2 }"
        " macro both($x) { $x + $x }"
        " BEGIN { $a = 1; $y = 2; print(twice($a + 1)); print(add(both({ $y += 1; $y })));"
        " print($a); print(__builtin_ncpus == ncpus); exit(); }"
    )
    assert run(text) == "10\n8\n1\ntrue\n"


def test_bytes_of_texts_and_addresses(run: Run) -> None:
    text = (
        'BEGIN { $t = "abc"; print(buf("ab", 8)); printf("%rh|%rx\\n", buf($t, 2), buf($t));'
        ' print(ntop(2, pton("127.0.0.1"))); print(ntop(10, pton("::1")));'
        ' print(pton("1.2.3.4")); $a = pton("1.2.3.4"); print($a[2]);'
        ' printf("%x %lx %d", (1 << 40) | 5, (1 << 40) | 5, -1); exit(); }'
    )
    shown = [
        *("ab" + 6 * r"\x00", r"61 62|\x61\x62\x63", "127.0.0.1", "::1", "[1,2,3,4]", "3"),
        "5 10000000005 -1",
    ]
    assert run(text).splitlines() == shown


def test_usermode_says_where_a_probe_is(run: Run) -> None:
    assert run("BEGIN { print(usermode); print(usermode()); exit(); }") == "1\n1\n"
    with pytest.raises(ProgramError, match=r"usermode is not supported yet .* kind tracepoint"):
        run("t:syscalls:sys_enter_getpid { print(usermode); exit(); }")


def test_symbols_are_names_without_offsets(run: Run) -> None:
    text = 'BEGIN { $a = kaddr("_stext"); print(ksym($a + 1)); print(ksym(1)); exit(); }'
    name, unknown = run(text).split()
    assert re.fullmatch(r"\w+", name)
    assert unknown == "0x1"
    path = build("default", "loop")
    at_main = f'uprobe:{path}:main {{ print(usym(reg("ip"))); exit(); }}'
    assert run(at_main, command=f"{path} -q -n 1").split() == ["main"]


def test_kaddr_is_the_address_of_a_symbol(run: Run) -> None:
    text = 'BEGIN { $a = kaddr("_stext"); print(*$a == *(uint64 *)$a); print($a); exit(); }'
    same, address = run(text).split()
    assert f"{int(address):016x} T _stext\n" in Path("/proc/kallsyms").read_text()
    assert same == "true"
    with pytest.raises(ProgramError, match="Failed to resolve kernel symbol: no_such_symbol"):
        run('BEGIN { print(kaddr("no_such_symbol")); }')
