"""The programs that a program imports: macros, maps, types and probes of other files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from usdt.base.frozen import replace
from usdt.engine.programs.included.headers import header_reader, read_text
from usdt.engine.programs.syntax.parser import MAX_LENGTH, parse_program
from usdt.engine.programs.syntax.program import moved
from usdt.engine.programs.syntax.source import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usdt.engine.programs.syntax.program import Program
    from usdt.engine.programs.syntax.tree import Import

__all__ = ("with_imports",)

_MOST = 100  # files
_LIBRARY = "stdlib"  # bpftrace's own, which is always there


def with_imports(
    source: Source, program: Program, folders: Sequence[str]
) -> tuple[Source, Program]:
    """Return a program with all that it imports before its own, and the text of all.

    A path is one of a file ``.bt``, or of a folder, whose files ``.bt`` are meant. It is relative
    to the folder of the file that imports it, else to that of the program. Each file is imported
    once.

    Args:
        source: the text of the program.
        program: the program.
        folders: where headers are looked for, besides the usual places.

    Raises:
        ProgramError: a file is not there or not valid, or is no program.
    """
    if not program.imports:
        return source, program
    imports = _Imports(source, folders)
    imports.read(source, program)
    whole = replace(source, imported=tuple(imports.sources))
    parts = [*imports.programs, program]
    return whole, replace(
        program,
        imports=(),
        definitions=tuple(one for part in parts for one in part.definitions),
        maps=tuple(one for part in parts for one in part.maps),
        macros=tuple(one for part in parts for one in part.macros),
        functions=tuple(one for part in parts for one in part.functions),
        probes=tuple(one for part in parts for one in part.probes),
    )


class _Imports:
    def __init__(self, source: Source, folders: Sequence[str]) -> None:
        self._folder = _folder(source)
        self._folders = folders
        self._known = {Path(source.name).resolve()}
        self.sources: list[tuple[int, Source]] = []
        self.programs: list[Program] = []  # what is imported stands before what imports it

    def read(self, source: Source, program: Program) -> None:
        """Read what a program imports, and what that imports."""
        for node in program.imports:
            for path in self._paths(source, node):
                if path.resolve() not in self._known:
                    self._file(path, source, node)

    def _file(self, path: Path, source: Source, node: Import) -> None:
        self._known.add(path.resolve())
        if len(self.programs) == _MOST:
            raise source.error(node.start, f"import: more than {_MOST} files")
        text = read_text(str(path))
        if text is None:
            raise source.error(node.start, f"import: {path} cannot be read")
        made = Source(text, str(path))
        found = parse_program(made, read_header=header_reader(str(path.parent), self._folders))
        if found.config is not None:
            reason = "config stands in the program itself, not in what it imports"
            raise made.error(found.config.start, reason)
        # Places of each file are behind those of the file before and of the library.
        distance = 2 * MAX_LENGTH * (len(self.sources) + 1)
        self.sources.append((distance, made))
        self.read(made, found)
        self.programs.append(moved(found, distance))

    def _paths(self, source: Source, node: Import) -> list[Path]:
        if node.path.split("/")[0] == _LIBRARY and not node.path.endswith((".c", ".h")):
            return []
        places = dict.fromkeys((_folder(source), self._folder))
        tried = [place / node.path for place in places]
        for path in tried:
            if path.is_dir():
                return sorted(path.glob("*.bt"))
            if path.exists():
                if path.suffix != ".bt":
                    reason = f"import: {path} is no program (.bt): none of C is linked here"
                    raise source.error(node.start, reason)
                return [path]
        reason = f"import: {' and '.join(map(str, tried))}: no such file"
        raise source.error(node.start, reason)


def _folder(source: Source) -> Path:
    return Path(source.name).parent
