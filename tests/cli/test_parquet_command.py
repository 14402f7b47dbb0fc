"""-o FILE.parquet: what is refused, and what it needs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tracing_tools import one_error, run_usdt

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("trace --json -o x.parquet -a p:q", "-o x.parquet is Parquet: leave out --json"),
        ("count --folded -o x.Parquet -a p:q", "-o x.Parquet is Parquet: leave out --folded"),
        ("merge --json x.json -o x.parquet", "-o x.parquet is Parquet: leave out --json"),
        ("report --csv x.usdt -o x.parquet", "-o x.parquet is Parquet: leave out --csv"),
        ("report x.usdt --format text -o x.parquet", "x.parquet is Parquet: leave out --format"),
        (
            "record -a p:q -o x.parquet",
            "-o x.parquet: a recording is no Parquet; make it with: usdt report",
        ),
    ],
)
def test_options_that_exclude_it(words: str, said: str) -> None:
    assert said in one_error(run_usdt(*words.split()), code=2)


@pytest.mark.parametrize("words", ["merge x.json", "report x.usdt", "trace -a p:q"])
def test_without_pyarrow_it_says_how_to_get_it(tmp_path: Path, words: str) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None; from usdt.cli import main; "
        f"sys.argv = ['usdt', *{words.split()}, '-o', 'x.parquet']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Error: x.parquet: Parquet needs pyarrow: pip install 'usdt-toolkit[parquet]'\n"
    )
    assert not [*tmp_path.iterdir()]


def test_a_merge_does_not_read_parquet(tmp_path: Path) -> None:
    place = tmp_path / "x.parquet"
    place.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    assert one_error(run_usdt("merge", place)) == (
        f"{place}: Parquet, which is not read here; merge the JSON streams or the recordings"
    )
