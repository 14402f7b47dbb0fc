"""Scripts that complete both commands in bash, zsh and fish, made by the commands.

``python tools/shell_completions.py DIRECTORY`` writes them there; a build of the package does the
same.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

__all__ = ("write_completions",)

_PROGRAMS = ("usdt", "kprobe")
#: The folder below ``share`` where a shell looks, and the file's name.
_PLACES = {
    "bash": ("bash-completion/completions", "{}"),
    "fish": ("fish/vendor_completions.d", "{}.fish"),
    "zsh": ("zsh/site-functions", "_{}"),
}


def write_completions(folder: Path) -> dict[str, list[str]]:
    """Write the scripts below a folder; return the folder of each shell, and the paths in it."""
    from usdt.engine.cli.completion.shells import SHELLS  # noqa: PLC0415 - setup.py finds it first

    written: dict[str, list[str]] = {}
    for shell, (place, pattern) in _PLACES.items():
        (folder / place).mkdir(parents=True, exist_ok=True)
        for program in _PROGRAMS:
            group = getattr(import_module(f"{program}.cli.group"), program)
            variable = f"_{program.upper()}_COMPLETE"
            path = folder / place / pattern.format(program)
            path.write_text(SHELLS[shell](group, {}, program, variable).source())
            written.setdefault(place, []).append(str(path))
    return written


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    write_completions(Path(sys.argv[1]))
