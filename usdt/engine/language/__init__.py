"""The probe language: ``PROBE[(ITEM, …)]``, one for user and kernel probes.

    tokens       text → tokens, constants → values
    tree         what a text says, as frozen nodes
    ctypenames   C's type names, in casts
    pattern      the part before the items: which probe, of what kind
    parser       text → tree
    render       tree → text; an error under its text

Nothing here looks anything up: names get their meaning when a probe is planned.
"""

from __future__ import annotations

from usdt.engine.language.parser import parse_expression, parse_items, parse_probe
from usdt.engine.language.render import caret, render
from usdt.engine.language.tree import BUILTINS, FUNCTIONS, Expression, Item, ProbeKind, ProbeText

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
)
