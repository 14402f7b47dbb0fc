"""The command that follows ``--``: what each machine runs, and what is done with its answer here.

Mistakes in it are found here, before any machine is asked. What shows results, such as --top, is
taken out: it applies to the results of all machines.
"""

from __future__ import annotations

import math
import time
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import click

from usdt.base.frozen import frozen
from usdt.base.text import closest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Group: TypeAlias = Literal["usdt", "kprobe"]

__all__ = ("Answer", "FarCommand", "parsed")


class Answer(Enum):
    """What comes from each machine."""

    RESULTS = "results"  # of aggregations, which are added up
    EVENTS = "events"  # hits and spans, in the order of their arrival
    TEXT = "text"  # the same answers are shown once


_ANSWERS: Mapping[Group, Mapping[str, Answer]] = {
    "usdt": {
        **dict.fromkeys(("trace", "spans", "report"), Answer.EVENTS),
        **dict.fromkeys(("count", "hist", "stats", "latency", "heatmap"), Answer.RESULTS),
        **dict.fromkeys(("list", "info", "check", "events", "features"), Answer.TEXT),
    },
    "kprobe": {
        **dict.fromkeys(("trace", "spans"), Answer.EVENTS),
        **dict.fromkeys(("count", "hist", "stats", "latency", "heatmap"), Answer.RESULTS),
        **dict.fromkeys(("list", "info", "event"), Answer.TEXT),
    },
}

_HERE = "it works the same on any machine: run it here"
_FILES = "it reads files: run it here"
_REFUSED: Mapping[str, str] = {
    "record": "it would leave a file on each machine; trace sends the same hits here",
    "top": "it draws a screen; count and latency are drawn again here as answers come",
    "export": "it is a service of each machine: see usdt help export",
    "attach": "the pinned program belongs to one machine",
    "btf": "it prints megabytes; kprobe info TYPE compares a type",
    "fleet": "a fleet asks machines, not other fleets",
    "merge": _FILES,
    "flame": _FILES,
    "decode": _HERE,
    "dump": _HERE,
    "schema": _HERE,
    "examples": _HERE,
}
_EVENT_COMMANDS = ("list", "show", "check")  # of ``kprobe event``: they change nothing

# Options that would write a file on each machine, and what to do instead.
_STREAM = "save a stream with --json -o FILE before --, and draw it with: usdt flame FILE"
_FILE_OPTIONS = {
    "output": "give it before --",
    "html": "save a stream with --json -o FILE before --, and read it with: usdt report",
    "flame": _STREAM,
    "speedscope": _STREAM,
    "pprof": _STREAM,
}
_FORMATS = ("csv", "chrome", "otlp", "header", "report_format")  # of ``report``
_SHOWN_HERE = ("top", "hist", "folded")  # options that show results
_DROPPED = (*_SHOWN_HERE, "as_json", "json", "at")


@frozen
class FarCommand:
    """What each machine runs, and what is done with its answer.

    Attributes:
        words: the command with its options, for the toolkit that the machine has.
        answer: what comes.
        duration: seconds that it runs; infinite if it has no limit.
        top, sort, hist, folded, realtime: how results are shown.
        whole: whether its intervals are only those of --update, and are added up.
    """

    words: tuple[str, ...] = ()
    answer: Answer = Answer.RESULTS
    duration: float = 0.0
    top: int | None = None
    sort: str | None = None
    hist: bool = False
    folded: bool = False
    realtime: bool = False
    whole: bool = False


def parsed(given: Sequence[str], update: float, *, as_json: bool) -> FarCommand:
    """Parse the command that follows ``--``.

    Args:
        given: its words.
        update: seconds between two results of a machine.
        as_json: whether the answer is wanted as JSON.

    Raises:
        click.UsageError: it cannot run on a fleet, or an option or a value is not valid.
        LanguageError: a probe is not valid.
    """
    words = [*given]
    group: Group = "kprobe" if words[:1] == ["kprobe"] else "usdt"
    if words[:1] in (["usdt"], ["kprobe"]):
        del words[0]
    if group == "kprobe" and words and set(":(") & set(words[0]):
        words.insert(0, "trace")  # as ``kprobe 'PROBE(…)'``
    name = _name(group, words[0] if words else "")
    answer = _ANSWERS[group][name]
    if answer is Answer.TEXT:
        return _text(group, name, words[1:], as_json=as_json)
    return _traced(group, name, words[1:], update)


def _name(group: Group, text: str) -> str:
    # Returns the name of a command, which may be given by its beginning.
    known = _ANSWERS[group]
    every = [*known, *_REFUSED]
    found = [text] if text in every else [name for name in every if text and name.startswith(text)]
    if len(found) == 1 and found[0] in _REFUSED:
        raise click.UsageError(f"cannot run {found[0]} on a fleet: {_REFUSED[found[0]]}")
    if len(found) == 1:
        return found[0]
    what = f"no command {text!r} for a fleet" if text else "no command"
    near = closest(text, every) if text else ""
    hint = f", perhaps {near!r}" if near and len(found) != 1 else ""
    raise click.UsageError(f"{what}{hint}; give one of {', '.join(known)} after --")


def _text(group: Group, name: str, words: Sequence[str], *, as_json: bool) -> FarCommand:
    if name == "event" and words[:1] and words[0] not in _EVENT_COMMANDS:
        raise click.UsageError(
            f"cannot run event {words[0]} on a fleet: it changes the tracer of each machine for "
            f"others, too; {', '.join(_EVENT_COMMANDS)} do not"
        )
    if as_json and name == "events":
        raise click.UsageError("events has no --json")
    json = ["--json"] if as_json and "--json" not in words else []
    return FarCommand((group, name, *words, *json), Answer.TEXT)


def _traced(group: Group, name: str, words: Sequence[str], update: float) -> FarCommand:
    command = _click_command(group, name)
    names = ["-h", "--help"]
    context = click.Context(command, info_name=f"{group} {name}", help_option_names=names)
    values, _, order = command.make_parser(context).parse_args(args=[*words])
    asks_for_help = command.get_help_option(context)
    if asks_for_help is not None and values.get(asks_for_help.name or ""):
        click.echo(command.get_help(context))
        raise click.exceptions.Exit(0)
    _check(context, values)
    duration = _typed(context, values, "duration")
    wait, at = _at(values.get("at"))
    options = [*dict.fromkeys(order)]
    answer = _ANSWERS[group][name]
    more = ["--json", *at]
    if answer is Answer.EVENTS and values.get("folded"):
        raise click.UsageError("--folded: count --ustack --folded adds up the stacks of a fleet")
    if name == "heatmap" and not values.get("align"):
        more.append("--align")  # rows of all machines begin at the same moments
    if values.get("folded") and not any(map(values.get, ("stack", "ustack", "kstack", "pystack"))):
        more.append("--ustack")  # as --folded implies
    alone = "interval" not in values and "count" not in values and name != "heatmap"
    length = math.inf if duration is None else duration
    whole = answer is Answer.RESULTS and alone and length > update
    if whole:
        more += ["--interval", f"{update:g}"]
    words = _written([one for one in options if one.name not in _DROPPED], values)
    return FarCommand(
        (group, name, *more, *words),
        answer,
        length + wait,
        top=_typed(context, values, "top"),
        sort=values.get("sort"),
        hist=bool(values.get("hist")),
        folded=bool(values.get("folded")),
        realtime=bool(values.get("realtime")),
        whole=whole,
    )


def _click_command(group: Group, name: str) -> click.Command:
    from usdt.cli.group import usdt  # noqa: PLC0415 - not for --help
    from usdt.engine.cli.commands import tracing_commands  # noqa: PLC0415 - not for --help

    if group == "usdt":
        return cast("click.Command", usdt.get_command(click.Context(usdt), name))
    # Those of kprobe are the same but for their examples.
    home, _ = tracing_commands(group, "", {name: f"kprobe {name}"})[name]
    return home(name)


def _check(context: click.Context, values: Mapping[str, Any]) -> None:
    # Finds mistakes without a look at this machine: its files and processes are not those meant.
    from usdt.engine.language import parse_probe  # noqa: PLC0415 - not for --help

    command = context.command
    for param in command.get_params(context):
        value = values.get(param.name or "")
        if isinstance(param, click.Argument) and param.required and not _given(value):
            raise click.MissingParameter(ctx=context, param=param)
        if _given(value):
            param.type_cast_value(context, value)
            option = param.opts[0] if len(param.opts) == 1 else param.opts[-1]
            if param.name in _FILE_OPTIONS:
                raise click.UsageError(
                    f"{option} would write on each machine; {_FILE_OPTIONS[param.name]}"
                )
            if param.name in _FORMATS:
                raise click.UsageError(
                    f"{option}: a fleet shows events as text, or as JSON with --json before --"
                )
    kind: Group = "kprobe" if (context.info_name or "").startswith("kprobe") else "usdt"
    probes = [*values.get("probes", ()), values.get("start"), values.get("end")]
    for probe in probes:
        if isinstance(probe, str) and context.info_name != "usdt report":
            parse_probe(probe, default=kind)


def _given(value: Any) -> bool:
    # Whether the parser of click has found a value: it has a mark of its own for none.
    return isinstance(value, (str, bool, int, list)) or (isinstance(value, tuple) and value != ())


def _typed(context: click.Context, values: Mapping[str, Any], name: str) -> Any:
    # Returns the value of an option, converted; None if it was not given.
    for param in context.command.params:
        if param.name == name and name in values:
            return param.type_cast_value(context, values[name])
    return None


def _written(params: Sequence[click.Parameter], values: Mapping[str, Any]) -> list[str]:
    # Returns options and arguments as words again.
    options: list[str] = []
    arguments: list[str] = []
    for param in params:
        value = values[param.name or ""]
        if isinstance(param, click.Argument):
            arguments += [value] if isinstance(value, str) else value if _given(value) else []
        elif isinstance(param, click.Option):
            options += _option_words(param, value)
    return [*options, *arguments]  # what follows is the option for the file of results


def _option_words(param: click.Option, value: Any) -> list[str]:
    name = param.opts[-1]
    if param.count:
        return [name] * int(value)
    if param.is_flag:
        return [name if value else param.secondary_opts[-1]]
    each = value if param.multiple else [value]
    return [word for one in each for word in (name, *([one] if isinstance(one, str) else one))]


def _at(text: str | None) -> tuple[float, list[str]]:
    # Returns the seconds until then, and --at with one moment for all machines, whatever their time
    # zones are.
    if text is None:
        return 0.0, []
    from usdt.base.moments import moment  # noqa: PLC0415 - few runs need it

    try:
        at = moment(text)
    except ValueError as err:
        raise click.UsageError(f"--at: {err}") from err
    return (at - time.time_ns()) / 1e9, ["--at", f"@{at // 10**9}.{at % 10**9:09}"]
