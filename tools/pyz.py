"""Both commands as one file that any Python 3.11 or newer runs.

``python tools/pyz.py FILE`` writes it: the archive that ``usdt fleet`` sends to other machines,
with a first line by which a shell starts it. The same sources give the same bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ("write_pyz",)

_FIRST_LINE = b"#!/usr/bin/env python3\n"


def write_pyz(path: Path) -> str:
    """Write the file, executable; return what to say of it.

    Raises:
        TargetError: click or pyelftools is not installed.
    """
    from usdt.fleet.zipapp import build_app  # noqa: PLC0415 - the checkout is put on the path first

    app = build_app()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_FIRST_LINE + app.content)
    path.chmod(0o755)
    return f"{path} ({path.stat().st_size} bytes)"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    print("pyz:", write_pyz(Path(sys.argv[1])))
