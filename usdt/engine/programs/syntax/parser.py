"""The parser of programs: text → tree.

Every text gives a tree or a :class:`~usdt.base.errors.ProgramError`. The parser descends
recursively, one method for each rule, in classes that build on one another: types, operands,
expressions, statements, definitions, and here the parts of a program. Nesting is limited to
``grammar.cursor.MAX_HEIGHT``, and the time grows with the length of the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from usdt.engine.programs.syntax.grammar.attach_points import read_attach_points
from usdt.engine.programs.syntax.grammar.definitions import DEFINING, DefinitionParser
from usdt.engine.programs.syntax.grammar.primaries import KEYWORDS
from usdt.engine.programs.syntax.preprocessor import preprocess
from usdt.engine.programs.syntax.program import (
    Config,
    ConfigValue,
    Function,
    Macro,
    MapDeclaration,
    Parameter,
    Probe,
    Program,
)
from usdt.engine.programs.syntax.tree import (
    Boolean,
    Identifier,
    Import,
    Integer,
    Map,
    String,
    Variable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from usdt.engine.programs.syntax.defines import Define
    from usdt.engine.programs.syntax.source import Source
    from usdt.engine.programs.syntax.tokens import Token
    from usdt.engine.programs.syntax.tree import Expression

__all__ = ("MAX_LENGTH", "parse_program")

MAX_LENGTH = 1 << 20  # characters of a program

_BETWEEN = re.compile(r"[\s;]*")
_WORD = re.compile(r"([A-Za-z_]\w*)(\s*:)?")

# The first word of a part → its last token, where that is not a closing brace.
_ENDS: dict[str, Literal[";", "string"]] = {"import": "string", "let": ";", "typedef": ";"}

# What is defined before the program begins: the kernel's types are known.
_PREDEFINED = {"BPFTRACE_HAVE_BTF": "1"}


def _no_header(path: str) -> str | None:
    del path
    return None


def parse_program(
    source: Source,
    *,
    read_header: Callable[[str], str | None] = _no_header,
    headers: Sequence[str] = (),
) -> Program:
    """Parse a program.

    Args:
        source: its text.
        read_header: path as in ``#include <path>`` → the text of the header; None: it is not there,
            and the line is ignored.
        headers: paths of headers that are included before.

    Raises:
        ProgramError: it is not valid; the error names the file, the line and the column.
    """
    if len(source.text) > MAX_LENGTH:
        reason = f"a program has at most {MAX_LENGTH} characters, this one has more"
        raise source.error(0, reason)
    clean = preprocess(source, _PREDEFINED, read_header, headers)
    return _ProgramParser(source, clean.text, clean.defines).program()


class _ProgramParser(DefinitionParser):
    def __init__(self, source: Source, text: str, defines: Mapping[str, Define]) -> None:
        super().__init__(source, text, defines)
        self.config: Config | None = None
        self.imports: list[Import] = []
        self.maps: list[MapDeclaration] = []
        self.macros: list[Macro] = []
        self.functions: list[Function] = []
        self.probes: list[Probe] = []
        self._parts: dict[str, Callable[[], None]] = {
            **dict.fromkeys(DEFINING, self.definition),
            "config": self._config,
            "fn": self._function,
            "import": self._import,
            "let": self._map_declaration,
            "macro": self._macro,
        }

    def program(self) -> Program:
        """Read the whole program."""
        at = 0
        while (at := self._skip(at)) < len(self.text):
            found = _WORD.match(self.text, at)
            word = found[1] if found and not found[2] else ""
            read = self._parts.get(word)
            if read is None:
                at = self._probe(at, word)
                continue
            self.load(at, _ENDS.get(word, "}"))
            read()
            at = self.at
        return Program(
            self.config,
            tuple(self.imports),
            tuple(self.definitions),
            tuple(self.maps),
            tuple(self.macros),
            tuple(self.functions),
            tuple(self.probes),
        )

    def _skip(self, at: int) -> int:
        # Semicolons between parts, as after a structure, change nothing.
        found = _BETWEEN.match(self.text, at)
        return found.end() if found else at

    def _probe(self, at: int, word: str) -> int:
        # Read the probe at this offset; return the offset behind it.
        try:
            points, at = read_attach_points(self.source, self.text, at)
        except ValueError:
            if len(word) > 2:
                self.misspelt(word, self.text.index(word, at), self._parts)
            raise
        predicate = None
        if self.text[at] == "/":
            self.load(at, "/")
            predicate = self.predicate()
            at = self.at
        self.load(at)
        block = self.block("after the predicate" if predicate else "after the probe")
        self.probes.append(Probe(points, predicate, block, points[0].start, self.at))
        return self.at

    def _import(self) -> None:
        self.imports.append(self.import_())

    def _config(self) -> None:
        start = self.token.start
        if self.config is not None:
            raise self.source.error(start, "the program has a second config: expected only one")
        self.advance()
        self.expect("=", "after config")
        self.expect("{", "after config =")
        values: list[ConfigValue] = []
        while self.token.text != "}":
            if self.accept(";"):
                continue
            name = self.name("the name of a setting, or '}'")
            self.expect("=", f"after {name.text}")
            value = self.primary()
            if not isinstance(value, Integer | String | Boolean | Identifier):
                reason = f"{name.text} needs a number, a string, a word, true or false"
                raise self.source.error(value.start, reason)
            values.append(ConfigValue(name.text, value, name.start, value.end))
            if self.token.text != "}":
                self.expect(";", "or '}' after the setting")
        self.advance()
        self.config = Config(tuple(values), start, self.at)

    def _map_declaration(self) -> None:
        start = self.advance().start
        token = self.token
        if token.kind != "map":
            self.fail("a map as @m: before the probes, let declares maps")
        self.advance()
        self.expect("=", f"after {token.text}")
        kind = self.name("a kind of map, as lruhash(100)")
        self.expect("(", f"after {kind.text}")
        arguments: tuple[Expression, ...] = ()
        if self.token.text != ")":
            arguments, _ = self.list_until(")", "the number of entries")
        else:
            self.advance()
        self.expect(";", "after the declaration of a map")
        made = Map(token.text, token.start, token.end)
        self.maps.append(MapDeclaration(made, kind.text, arguments, start, self.at))

    def _free_name(self, what: str) -> Token:
        # A keyword in its place would define what no program can call.
        if self.token.text in KEYWORDS:
            self.fail(f"{what}, which is no keyword")
        return self.name(what)

    def _macro(self) -> None:
        start = self.advance().start
        name = self._free_name("the name of the macro")
        self.expect("(", f"after {name.text}")
        parameters: list[Variable | Map | Identifier] = []
        while self.token.text != ")":
            token = self.token
            if token.kind not in ("variable", "map", "name"):
                self.fail("a parameter: $variable, @map or a name for an expression")
            parameter = self.primary()
            if not isinstance(parameter, Variable | Map | Identifier):
                reason = "expected a parameter: $variable, @map or a name for an expression"
                raise self.source.error(token.start, reason)
            if any(parameter == other for other in parameters):
                raise self.source.error(token.start, f"{name} has two parameters {token}")
            parameters.append(parameter)
            if not self.accept(","):
                break
        self.expect(")", "after the parameters")
        body = self.block("after the parameters")
        self.macros.append(Macro(name.text, tuple(parameters), body, start, self.at))

    def _function(self) -> None:
        start = self.advance().start
        name = self._free_name("the name of the function")
        self.expect("(", f"after {name.text}")
        parameters: list[Parameter] = []
        while self.token.text != ")":
            token = self.token
            if token.kind != "variable":
                self.fail("a parameter: $name : type")
            self.advance()
            self.expect(":", f"and a type after {token.text}")
            kind = self.type_name()
            variable = Variable(token.text, token.start, token.end)
            parameters.append(Parameter(variable, kind, token.start, kind.end))
            if not self.accept(","):
                break
        self.expect(")", "after the parameters")
        self.expect(":", "and the type of the result after the parameters")
        result = self.type_name()
        block = self.block("after the type of the result")
        made = Function(name.text, tuple(parameters), result, block, start, self.at)
        self.functions.append(made)
