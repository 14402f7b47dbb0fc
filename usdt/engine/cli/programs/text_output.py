"""The text that a program prints, on its way to the output: when it is written."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.output.output_file import OutputFile

__all__ = ("TextOutput",)

_KEPT = 1 << 16  # characters that are kept at most


class TextOutput:
    """Text for an output file.

    Args:
        output: the file.
        buffering: ``none`` writes each text at once; ``line`` writes the texts of a batch of events
            together, and others at once; ``full`` writes whenever there is much.
    """

    def __init__(self, output: OutputFile, buffering: str) -> None:
        self._output = output
        self._alone = buffering == "none"
        self._keeping = buffering == "full"
        self._kept: list[str] = []
        self._size = 0

    def write(self, text: str) -> None:
        """Write a text, or keep it for later; raises what :meth:`OutputFile.write` does."""
        self._kept.append(text)
        self._size += len(text)
        if not self._keeping or self._size >= _KEPT:
            self.flush()

    def flush(self) -> None:
        """Write what is kept."""
        kept, self._kept, self._size = self._kept, [], 0
        if kept:
            self._output.write(kept)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Write the texts of this context together, if the buffering allows it."""
        if self._alone or self._keeping:
            yield
            return
        self._keeping = True
        try:
            yield
        finally:
            self._keeping = False
            self.flush()
