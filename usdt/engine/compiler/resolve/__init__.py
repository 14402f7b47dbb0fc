"""Names and types: from a syntax tree to typed expressions, by C's rules.

Integer promotion and the usual arithmetic conversions are C's (C17 6.3.1): what is smaller than
``int`` becomes ``int``; of two types the larger wins, at equal size the unsigned one. Constants
are folded on the way.
"""

from __future__ import annotations

from usdt.engine.compiler.resolve.expressions import (
    address_of,
    begin_of,
    given_limit,
    resolve,
    scalar,
)
from usdt.engine.compiler.scope import DEFAULT_STRING, INTEGER_BUILTINS, MAX_READ, Scope, Types

__all__ = (
    "DEFAULT_STRING",
    "INTEGER_BUILTINS",
    "MAX_READ",
    "Scope",
    "Types",
    "address_of",
    "begin_of",
    "given_limit",
    "resolve",
    "scalar",
)
