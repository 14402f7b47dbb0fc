"""click without modules of which it needs little: what stands in for them does the same."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usdt.base.terminal.click_import import _cleandoc

BEGIN = "import sys; from usdt.base.terminal.click_import import import_click; import_click(); "


def printed(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize(
    "text",
    [
        "",
        "one line",
        "  one line, indented",
        "first\n    second\n      third\n\n    fourth\n    ",
        "\n    \b\n    usdt list\n",
        "first\n\tsecond\n        third",
        "\n\n  \n  after blank lines\n   \n\n",
    ],
)
def test_documentation_is_cleaned_as_inspect_does(text: str) -> None:
    assert _cleandoc(text) == inspect.cleandoc(text)


@given(st.text(alphabet=" ab\t\n\b", max_size=40))
def test_any_documentation_is(text: str) -> None:
    assert _cleandoc(text) == inspect.cleandoc(text)


def test_the_modules_are_not_imported() -> None:
    names = "{'inspect', 'platform', 'gettext', 'uuid', 'datetime', 'ast', 'dis'}"
    assert printed(f"import click; print(sorted({names} & set(sys.modules)))") == "[]\n"


def test_annotations_are_not_compiled() -> None:
    code = (
        "import sys, typing; sources = []; sys.dont_write_bytecode = True; sys.addaudithook("
        "lambda event, words: sources.append(words) if event == 'compile' else None);"
        "from usdt.base.terminal.click_import import import_click; import_click();"
        "print([words for words in sources if words[1] == '<string>'])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_annotations_can_be_evaluated() -> None:
    code = (
        "import typing\n"
        "class Row(typing.NamedTuple):\n"
        "    name: 'str | None'\n"
        "    more: 'tuple[int, ...]'\n"
        "class Words(typing.TypedDict):\n"
        "    row: 'Row'\n"
        "print(typing.get_type_hints(Row), typing.get_type_hints(Words))\n"
    )
    usual, ours = (
        subprocess.check_output([sys.executable, "-c", f"{begin}\n{code}"], text=True)
        for begin in ("", BEGIN)
    )
    assert usual == ours
    assert "str | None" in ours


def test_everybody_else_has_the_modules_themselves() -> None:
    code = (
        "import inspect, platform, gettext, uuid;"
        "print(inspect.signature(print) is None, platform.machine() != '', gettext.find('none'),"
        "uuid.UUID(int=1))"
    )
    assert printed(code) == "False True None 00000000-0000-0000-0000-000000000001\n"


def test_click_has_all_of_them() -> None:
    code = (
        "import click.core; own = click.core.inspect; print('inspect' in sys.modules);"
        "print(own.isgeneratorfunction(print)); import inspect;"
        "print(own is inspect, own.signature is inspect.signature)"
    )
    assert printed(code) == "False\nFalse\nFalse True\n"


def test_click_makes_uuids() -> None:
    code = (
        "import click; made = click.UUID.convert('1' * 32, None, None); import uuid;"
        "print(made == uuid.UUID('1' * 32), click.UUID.convert(made, None, None) is made)"
    )
    assert printed(code) == "True True\n"


def test_click_reads_dates() -> None:
    code = (
        "import click; kind = click.DateTime(); made = kind.convert('2026-11-28', None, None);"
        "import datetime; print(made == datetime.datetime(2026, 11, 28), type(made).__module__);"
        "print(kind.convert(made, None, None) is made)"
    )
    assert printed(code) == "True datetime\nTrue\n"


@pytest.mark.parametrize("number", [1, 2])
def test_messages_of_click_are_as_usual(number: int) -> None:
    code = (
        "import click; command = click.Command('c', params=[click.Option(['-x'], nargs=2)]);"
        f"command.main(['-x', '1', '2'] + ['more'] * {number})"
    )
    usual, ours = (
        subprocess.run([sys.executable, "-c", begin + code], capture_output=True, check=False)
        for begin in ("", BEGIN)
    )
    assert (usual.returncode, usual.stderr) == (ours.returncode, ours.stderr)
    assert b"unexpected extra argument" in ours.stderr


@pytest.mark.parametrize("word", ["-q", "-x1", "--rwo", "--nothing"])
def test_similar_options_are_as_usual(word: str) -> None:
    code = (
        "import click; command = click.Command('c', params=[click.Option(['-x', '--row'])]);"
        f"command.main([{word!r}])"
    )
    usual, ours = (
        subprocess.run([sys.executable, "-c", begin + code], capture_output=True, check=False)
        for begin in ("", BEGIN)
    )
    assert (usual.returncode, usual.stderr) == (ours.returncode, ours.stderr)


def test_options_of_one_letter_are_compared_with_none() -> None:
    code = (
        "import click; command = click.Command('c', params=[click.Option(['-x', '--row'])]);"
        "command.main(['-x', '1'], standalone_mode=False);"
        "import sys; print('heapq' in sys.modules);"
        "import difflib; print(difflib.get_close_matches('row', ['rwo', 'x']));"
        "print(difflib.SequenceMatcher.__name__, 'heapq' in sys.modules)"
    )
    assert printed(code) == "False\n['rwo']\nSequenceMatcher True\n"


def test_modules_that_are_there_stay() -> None:
    code = (
        "import inspect as first; from usdt.base.terminal.click_import import import_click; "
        "import_click(); import sys, click; "
        "print(sys.modules['inspect'] is first, click.core.inspect is first)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "True True\n"
