"""Every command that README.md, docs/ and the help print is one that the commands understand."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
from typing import TYPE_CHECKING

import click
import pytest
from house import ROOT

from kprobe.cli.group import kprobe
from usdt.cli.group import usdt
from usdt.engine.language import parse_items, parse_probe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from usdt.engine.language.tree import ProbeKind

_GROUPS: dict[str, click.Group] = {"usdt": usdt, "kprobe": kprobe}
_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# A command at the start of a line or behind a prompt, up to a second column; or one in backticks.
_LINE = re.compile(r"^(?: *\$ | {4}| {2})(?:sudo )?((?:usdt|kprobe) \S.*?)(?: {3,}\S.*)?$")
_TICKED = re.compile(r"`((?:usdt|kprobe) [a-z]+ [^`]*)`")
# Placeholders of synopses and elisions, which are no words of a command.
_SYNOPSIS = re.compile(r"…|\.\.\.|\[|PROBE|START|EXPR|COMMAND|FILE\b|\|")

_MISTAKES = {"usdt trace /usr/bin/python3.11:'python:gc__done(arg0 >)'"}


def _in_pages() -> Iterator[tuple[str, str]]:
    for page in _PAGES:
        text = re.sub(r"\\\n *", "", page.read_text())
        for line in text.splitlines():
            found = [match[1] for match in [_LINE.match(line)] if match] or _TICKED.findall(line)
            for command in found:
                if not _SYNOPSIS.search(re.sub(r"'[^']*'", "", command)):
                    yield f"{page.name}: {command}", command


def _in_help() -> Iterator[tuple[str, str]]:
    for program, group in _GROUPS.items():
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            text = (command.help or "").replace("\\\n", " ")
            for line in text.splitlines():
                if line.strip().startswith(("usdt ", "kprobe ")):
                    yield f"{program} {name} --help: {line.strip()}", line.strip()


COMMANDS = dict([*_in_pages(), *_in_help()])


def _words(command: str) -> list[str]:
    # The words of the shell, up to a redirection or another command.
    command = re.sub(r"-p (PID|\$[A-Z]+)", "-p 1", command)
    command = re.sub(r" --btf \S+", "", command)  # a file that this machine does not have
    split = shlex.shlex(command, posix=True, punctuation_chars="();<>|&")
    split.whitespace_split = True
    return [*itertools.takewhile(lambda word: not set(word) <= set("();<>|&"), split)]


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_printed_command_is_understood(command: str) -> None:
    program, *words = _words(command)
    kind: ProbeKind = "kprobe" if program == "kprobe" else "usdt"
    context = click.Context(_GROUPS[program], info_name=program)
    group: click.Command = _GROUPS[program]
    while isinstance(group, click.Group) and words and words[0] != "help":
        _, found, words = group.resolve_command(context, words)
        assert found is not None
        group, context = found, click.Context(found, parent=context, info_name=found.name)
    if isinstance(group, click.Group) or "--help" in words:
        return
    with contextlib.suppress(click.MissingParameter):  # prose names commands by an option
        values = group.make_context(group.name, list(words), parent=context.parent).params
        if command not in _MISTAKES:
            for probe in values.get("probes") or ():
                parse_probe(probe, default=kind)
        for option in ("by", "key", "end_key"):
            assert values.get(option) is None or parse_items(values[option])


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 150
