"""The examples of docs/spans.md print what the page shows."""

from __future__ import annotations

import pytest
from house import ROOT

_PAGE = ROOT / "docs" / "spans.md"
if not _PAGE.exists():
    pytest.skip("needs docs/spans.md, which virtual machines lack", allow_module_level=True)

from test_readme import consoles, needs_python, run, shape  # noqa: E402 - reads README.md

pytestmark = pytest.mark.usefixtures("ringbuf")

_EXAMPLES = consoles(_PAGE.read_text())


@needs_python
@pytest.mark.parametrize(("command", "expected"), _EXAMPLES, ids=[one for one, _ in _EXAMPLES])
def test_examples_print_what_is_shown(command: str, expected: list[str]) -> None:
    lines, status = run(command)
    assert status == 0
    assert sorted(map(shape, lines)) == sorted(map(shape, expected))


def test_there_is_an_example() -> None:
    assert _EXAMPLES
