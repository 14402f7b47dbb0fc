"""Every construct of the probe language, once at least, for verifiers and for docs to be held to.

Numbers are over the arguments of ``args:mixed12``: signed and unsigned, of every size, in
registers, in memory and constant. Texts are over ``strings:two``, whose arguments point at "first"
and "second".
"""

from __future__ import annotations

import itertools
import sys

from usdt.engine.language.c_type_names import _BASIC, NAMED_TYPES
from usdt.engine.language.tree import PRECEDENCE

__all__ = ("ALL_AT_ONCE", "CONTEXT", "NUMBERS", "PREDICATES", "STACKS", "TEXTS")

_OPERANDS = (
    ("arg0", "arg1"),
    ("arg2", "arg3"),
    ("arg7", "arg2"),
    ("arg8", "arg5"),
    ("arg10", "arg6"),
)
_TYPES = (*(basic[0] for basic in _BASIC.values()), *NAMED_TYPES)
_SPOILED = ("&", "||", "&&")  # constants would fold them

#: Items whose value is what folding the same constants gives.
NUMBERS: tuple[str, ...] = (
    *(f"arg{n}" for n in (0, 1, 2, 3, 5, 6, 7, 8, 10, 11)),
    *(f"({left}{op}{right})+0" for op in PRECEDENCE for left, right in _OPERANDS),
    *(f"({right}{op}7)+0" for op in PRECEDENCE if op not in _SPOILED for _, right in _OPERANDS[:3]),
    *(f"{sign}{name}" for sign in "-~+" for name in ("arg0", "arg1", "arg2", "arg3", "arg7")),
    *(f"(!{name})+0" for name in ("arg0", "arg1", "arg2", "arg3")),
    *(f"({word})({name})" for word in _TYPES for name in ("arg2", "arg3")),
    *(f"(char*)arg3+{n}-(char*)arg3" for n in ("1", "arg8")),
    *("'a'+arg0", "017+arg0", "0x10+arg0", "0b101*arg0", "0xffffffffffffffff&arg3", "~0ul^arg3"),
    *("arg2/0", "arg2%(arg0-arg0)", "arg3/(arg0-arg0)", "(arg0&&arg2||arg3>arg2)+0"),
    "+".join(f"arg{n % 4}" for n in range(60)),
    "(" * 18 + "arg2" + "".join(f"+arg{n % 4})" for n in range(18)),
    "".join(f"arg{n % 4}*(arg2-(" for n in range(8)) + "arg0" + "))" * 8,
)

#: Items of text, and what they show at odd rounds.
TEXTS: dict[str, object] = {
    "str(arg0)": "second",
    "str(arg0,3)": "sec",
    "str(arg0,65535)": "second",
    "str(arg0+2)": "cond",
    "buf(arg1,4)": "firs",
    "buf(arg1,(*(char*)arg1)-'a')": "first",
    "buf(arg1,0)": "",
    "*(char*)arg0": ord("s"),
    "((unsigned char*)arg0)[3]": ord("o"),
    "*((short*)arg0+1)": int.from_bytes(b"co", sys.byteorder),
    "hex(*(int*)arg1)": hex(int.from_bytes(b"firs", sys.byteorder)),
    "(str(arg0)!=str(arg1))+0": 1,
    "(str(arg0,1)==str(arg1,1))+0": 0,
    "(str(arg0+1,255)==str(arg0+1,255))+0": 1,
    **{f'(str(arg0)=="{text}")+0': truth for text, truth in (
        ("second", 1), ("secon", 0), ("secon*", 1), ("*", 1), ("", 0), ("x" * 255, 0),
        ("s" * 8 + "*", 0), (r"sec\x2a", 0), ("*con*", 1), ("*nd", 1), ("s*c*n*", 1),
        (r"sec\**", 0),
    )},
    **{f'(buf(arg0,6)=="{text}")+0': truth for text, truth in (("second", 1), ("secon\\0", 0))},
    **{f'(str(arg1)!="{"x" * size}")+0': 1 for size in (1, 3, 7, 14, 120, 254)},
    '(str(arg0,3)=="sec"&&!(str(arg1)=="second"))+0': 1,
    '(func=="strings:*")+0': 1,
    "func": "strings:two",
}  # fmt: skip

#: Items of the context: shown, and never unreadable.
CONTEXT = (
    *("pid", "tid", "uid", "gid", "cpu", "ts", "cgroup", "comm", "usym(arg0)", "ksym(arg0)"),
    *("container", "pod", "unit", "cgroup_path"),
    *("hex(arg0)", '(comm=="strings")+0', '(comm!="str*")+0', "(pid==tid)+0"),
)

#: Predicates over strings:two; the second of each pair says whether an odd round passes.
PREDICATES = {
    'str(arg0) == "second"': True,
    'str(arg0) == "sec*"': True,
    'str(arg0) != "second"': False,
    'str(arg0) == "*con*"': True,
    'buf(arg0, 3) == "sec" && true': True,
    'contains(str(arg0, 6), "cond") && comm == "*in*s"': True,
    '!contains(str(arg0), "x") && func == "*two"': True,
    "str(arg0) == str(arg1)": False,
    "str(arg0, 255) != str(arg1, 255)": True,
    'comm == "strings"': True,
    'comm == "strin*" && pid == tid': True,
    'uid == 0 || str(arg0) == "first"': True,
    "*(char *)arg0 == 's'": True,
    "((char *)arg0)[arg0 - arg0] != ((char *)arg1)[0]": True,
    "arg0 / (arg0 - arg0) == 1": False,
    "!(arg0 > arg1) || arg0 >= arg1": True,
    '!(str(arg1) == "f*" && str(arg0) == "s*")': False,
    "cpu < 1000000, ts > 0, cgroup >= 0, gid == 0 || gid != 0": True,
}

#: Items of stacks, alone and beside others.
STACKS = ("ustack", "kstack", "ustack, kstack, str(arg0), arg1", "kstack, *(char *)arg0, ustack")

#: As many values as a probe can show, of every kind.
ALL_AT_ONCE = ", ".join(itertools.islice((*TEXTS, *CONTEXT, *(f"arg0+{n}" for n in range(64))), 64))
