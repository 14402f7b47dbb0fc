"""Names and types: from a syntax tree to typed expressions, by C's rules.

expressions   every kind of expression: :class:`Resolver`
strings       comparisons of strings
operands      what must be an integer, an address, a string
names         arguments, built-ins, constants
conversions   C's conversions, and arithmetic with pointers
btf_types     members, elements and casts by BTF

Integer promotion and the usual arithmetic conversions are C's (C17 6.3.1): what is smaller than
``int`` becomes ``int``; of two types the larger wins, at equal size the unsigned one. Constants
are folded on the way.
"""

from __future__ import annotations

from usdt.engine.compiler.resolve.expressions import Resolver, resolve
from usdt.engine.compiler.resolve.operands import address_of_lvalue
from usdt.engine.compiler.scope import INTEGER_BUILTINS, Scope, TypeProvider

__all__ = ("INTEGER_BUILTINS", "Resolver", "Scope", "TypeProvider", "address_of_lvalue", "resolve")
