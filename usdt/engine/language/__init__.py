"""The probe language, ``PROBE[(ITEM, …)]``, which user and kernel probes share.

tokens    text → tokens; values of constants
pattern   the text before the items → kind, path, provider and name
parser    text → tree; ``c_type_names``: the types in casts
tree      the nodes of the syntax tree; ``needs_types``: which items need debug information
rendering  tree → text; the text of an error with a ``^`` under its column
error_numbers  names and numbers of errors, those of the kernel, too

This package looks up no names. The compiler does that when it plans a probe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from usdt.base.lazy_exports import lazy_exports
from usdt.engine.language.parser import parse_expression, parse_items, parse_probe
from usdt.engine.language.pattern import written_kind
from usdt.engine.language.tree import BUILTINS, FUNCTIONS, Expression, Item, ProbeKind, ProbeText

if TYPE_CHECKING:
    from usdt.engine.language.rendering import caret, render

__all__ = (
    "BUILTINS",
    "FUNCTIONS",
    "Expression",
    "Item",
    "ProbeKind",
    "ProbeText",
    "caret",
    "parse_expression",
    "parse_items",
    "parse_probe",
    "render",
    "written_kind",
)

# For messages.
__getattr__, __dir__ = lazy_exports(
    __name__, {"usdt.engine.language.rendering": ("caret", "render")}
)
