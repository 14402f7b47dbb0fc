"""User addresses to names: symbol tables, debug files, JIT maps, the vDSO; names demangled."""

from __future__ import annotations

from usdt.demangle.demangle import demangle
from usdt.symbolize.files import FileSymbols
from usdt.symbolize.symbolizer import Symbolizer

__all__ = ("FileSymbols", "Symbolizer", "demangle")
