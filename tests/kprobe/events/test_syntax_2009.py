"""The syntax of 2009: what is translated, and what keeps its meaning of today."""

from __future__ import annotations

import pytest

from kprobe.events.syntax_2009 import translate


@pytest.mark.parametrize(
    ("line", "parameters", "modern"),
    [
        pytest.param("p:x f a0 s1 sa", (), "p:x f $arg1 $stack1 $stack", id="no prototype"),
        pytest.param("p f n=+4(a1):u32", (), "p f n=+4($arg2):u32", id="in a fetch"),
        pytest.param("r:x f rv ra", (), "r:x f $retval", id="a return"),
        pytest.param("p:x f%return v=rv ra", (), "p:x f%return v=$retval", id="a return by suffix"),
        pytest.param("p:x f ra->size ra", ("ra",), None, id="a parameter ra"),
        pytest.param("r:x f ra", ("ra",), None, id="a parameter ra at a return"),
        pytest.param("p:x f ra rv", (), None, id="at entry there is no return address"),
        pytest.param("p:x f dev sa", ("dev", "sa"), None, id="a parameter sa"),
        pytest.param("p:x f s1:string a0", ("s1",), "p:x f s1:string $arg1", id="one of two"),
        pytest.param('p:x f t=\\"sa" ', (), None, id="a text"),
        pytest.param("e:x sched.sched_switch if s1 == 2", (), None, id="a condition"),
        pytest.param("f:x f sa", (), None, id="a function probe"),
        pytest.param("p:x f sa=$arg1", (), None, id="a name of an argument"),
    ],
)
def test_translation(line: str, parameters: tuple[str, ...], modern: str | None) -> None:
    assert translate(line, parameters)[0] == (modern or line)
