"""Source lines as names of probes, ``uprobe:TARGET:SOURCE:LINE``: what is taken for one."""

from __future__ import annotations

import pytest

from usdt.base.errors import LanguageError
from usdt.engine.language import parse_probe
from usdt.engine.language.pattern import source_line

_LINES = [
    ("uprobe:/x:a.c:12", "/x", "a.c:12", "a line of a file"),
    ("uprobe:/a:b/x:src/a.c:12", "/a:b/x", "src/a.c:12", "a program with a colon"),
    ('uprobe:/x:"a:b.c":12', "/x", "a:b.c:12", "a source file with a colon"),
    ("uprobe:a.c:12", None, "a.c:12", "a line of any program"),
    ("u:/x:a.c:12", "/x", "a.c:12", "bpftrace's name of the kind"),
    ("uprobe:/x: a.c : 12 ", "/x", "a.c:12", "blanks around"),
    ("uprobe:/x:ns::f", "/x", "ns::f", "a C++ function"),
    ("uprobe:/x:f+12", "/x", "f+12", "a place in a function"),
    ('uprobe:/x:"12"', "/x", "12", "a quoted number is a name"),
]


@pytest.mark.parametrize("items", ["", "()", "(a, 1)"])
@pytest.mark.parametrize(
    ("text", "path", "name"), [pytest.param(*one[:3], id=one[3]) for one in _LINES]
)
def test_a_line_is_a_number_behind_a_source_file(
    text: str, path: str | None, name: str, items: str
) -> None:
    probe = parse_probe(text + items)
    assert (probe.kind, probe.path, probe.provider, probe.name) == ("uprobe", path, "", name)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("uprobe:/x:*.c:12", "found '*': a source line is that of one file", id="star"),
        pytest.param("uprobe:/x*:a.c:12", "found '*': a source line is that", id="star in a path"),
        pytest.param("uprobe:/x: :12", "found ':' where a source file belongs", id="no source"),
    ],
)
def test_what_is_no_source_line_is_refused(text: str, reason: str) -> None:
    with pytest.raises(LanguageError, match=r"^" + reason.replace("*", r"\*")):
        parse_probe(text)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("a.c:12", ("a.c", 12), id="a line"),
        pytest.param("a:b.c:007", ("a:b.c", 7), id="a colon in the file"),
        pytest.param("ns::3", ("ns:", 3), id="two colons"),
        pytest.param(":12", None, id="no file"),
        pytest.param("a.c:", None, id="no number"),
        pytest.param("a.c:1\u0663", None, id="a digit of another script"),
        pytest.param("a.c:-1", None, id="a sign"),
        pytest.param("a\nb:1", None, id="a line break"),
        pytest.param("main", None, id="a function"),
    ],
)
def test_the_file_and_the_number_of_a_line(name: str, expected: tuple[str, int] | None) -> None:
    assert source_line(name) == expected
