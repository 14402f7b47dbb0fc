"""A group that imports commands on demand; errors, exit codes, messages, sizes and durations.

This module imports nothing of the engine, so that ``--help`` is fast.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from importlib import import_module
from io import FileIO, StringIO, TextIOWrapper
from typing import TYPE_CHECKING, Any, NoReturn

import click

from usdt.base.durations import nanoseconds
from usdt.base.interrupts import interrupted
from usdt.base.terminal import progress
from usdt.base.terminal.look import WHEN, choose, help_width, look_of
from usdt.base.text import closest, plural, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from click.shell_completion import CompletionItem

    from usdt.base.errors import LanguageError

__all__ = (
    "MORE_HELP",
    "SIZE",
    "IntegerType",
    "LazyGroup",
    "Seconds",
    "btf_option",
    "colour_option",
    "combined",
    "messages_said",
    "plural",
    "run",
    "say",
    "version_option",
    "warn",
)

_ASKS_FOR_HELP = f"{__name__}.help"  # in the meta of a context

#: The end of the help of both commands.
MORE_HELP = """\b
COMMAND --help   the options of a command, with examples
help probes      how probes are named
help items       what stands in the parentheses of a probe
help topics      all pages: the language, aggregations, privileges, …
"""


class LazyGroup(click.Group):
    """A group that imports each command when it is run.

    Args:
        commands_at: name → ("module:command", one line of help). The first of the two may also be a
            function that takes the name and returns the command.
    """

    def __init__(
        self,
        *args: Any,
        commands_at: Mapping[str, tuple[str | Callable[[str], click.Command], str]],
        **more: Any,
    ) -> None:
        # Commands of the group inherit the names of the option.
        more.setdefault("context_settings", {"help_option_names": ["-h", "--help"]})
        super().__init__(*args, **more)
        self._commands_at = commands_at

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments as click does; ``help COMMAND`` means ``COMMAND --help``.

        ``help TOPIC`` shows a page; a command of this name comes first.
        """
        if args[:1] == ["help"]:
            ctx.meta[_ASKS_FOR_HELP] = True
            if len(args) == 2 and not self._matches(args[1]) and not ctx.resilient_parsing:
                from usdt.engine.cli.help.topics import show_topic  # noqa: PLC0415 - not for --help

                show_topic(args[1], ctx, self._commands_at)
                ctx.exit()
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names in the order of the table."""
        return [*self._commands_at]

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        """Import and return a command; None if there is none of this name."""
        if cmd_name not in self._commands_at:
            return None
        home = self._commands_at[cmd_name][0]
        if not isinstance(home, str):
            return home(cmd_name)
        module, name = home.split(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a closed pipe ends it quietly, where click exits with 1."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return _quiet_end()

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of commands from the table, without importing the commands."""
        rows = [(name, text) for name, (_, text) in self._commands_at.items()]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command as click does, also by the beginning of its name.

        The beginning must be that of one command only. For an unknown name, suggest the closest.
        """
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in self._commands_at:
            matches = self._matches(name)
            if len(matches) != 1 and ctx.resilient_parsing:  # a shell asks for completions
                return None, None, args
            if len(matches) != 1:
                near = closest(name, self._commands_at)
                hint = f" Did you mean {near!r}?" if near else ""
                if matches:
                    hint = f" It could be {' or '.join(matches)}."
                ctx.fail(f"No such command {name!r}.{hint}")
            args = [matches[0], *args[1:]]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offer the commands, without importing them, and options; topics behind ``help``."""
        from click.shell_completion import CompletionItem  # noqa: PLC0415 - only for a shell

        rows = {name: text for name, (_, text) in self._commands_at.items()}
        if ctx.meta.get(_ASKS_FOR_HELP):
            from usdt.engine.cli.help.topics import topics  # noqa: PLC0415 - as above

            rows |= topics(self._commands_at)
        elif ctx.parent is None:
            rows["help"] = "Show the help of a command, or a topic."
        return [
            CompletionItem(name, help=text)
            for name, text in rows.items()
            if name.startswith(incomplete)
        ] + click.Command.shell_complete(self, ctx, incomplete)

    def _matches(self, start: str) -> list[str]:
        return [command for command in self._commands_at if command.startswith(start)]


def _show_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    if value and not ctx.resilient_parsing:
        from usdt.engine.cli.help.version import version_text  # noqa: PLC0415 - not for --help

        click.echo(version_text(ctx.find_root().info_name or ""), nl=False)
        ctx.exit()


#: Adds the option that shows the version, the commit and the extras.
version_option = click.option(
    *("-V", "--version"),
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version, the commit and the installed extras.",
)


#: Adds --color, which has its effect on :func:`usdt.base.terminal.look.look_of`.
colour_option = click.option(
    "--color",
    type=click.Choice(WHEN),
    default="auto",
    expose_value=False,
    is_eager=True,
    callback=lambda _context, _option, when: choose(when),
    help="Use colours: auto (on terminals, see NO_COLOR), always or never.",
)


def _use_btf(_context: object, _option: object, path: str | None) -> None:
    if path is not None:
        from usdt.btf.reader import use_kernel_btf  # noqa: PLC0415 - few runs need it

        use_kernel_btf(path)


#: Adds --btf, which has its effect on what reads the kernel's types.
btf_option = click.option(
    "--btf",
    metavar="FILE",
    expose_value=False,
    callback=_use_btf,
    help="Take the kernel's types from FILE, if it has none itself.",
)


def combined(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a decorator that adds the arguments and options of several, in the order given."""

    def decorate(function: Any) -> Any:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


# Before click 8.4 it has no parameter.
if TYPE_CHECKING:
    IntegerType = click.ParamType[int]
else:
    IntegerType = click.ParamType

_MOST_DIGITS = 20  # limit of a size: int() raises an error of its own for thousands of digits


class Size(IntegerType):
    """A click parameter type: a number of bytes, as 65536, 64K, 8M or 1G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of bytes."""
        if isinstance(value, int):
            return value
        text = str(value).strip().upper().removesuffix("IB").removesuffix("B")
        factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        digits = text[:-1] if factor > 1 else text
        if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
            self.fail(f"{value!r} is not a size; write 65536, 64K or 8M.", param, ctx)
        return int(digits) * factor


SIZE = Size()


class Seconds(click.FloatRange):
    """A click parameter type: a number of seconds, or a duration with its unit: ``500ms``, ``2m``.

    The arguments are those of :class:`click.FloatRange`.
    """

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds."""
        duration = nanoseconds(str(value))
        if duration is not None:
            value = duration / 1e9
        try:
            seconds = float(value)
        except ValueError:
            seconds = float("nan")
        if seconds != seconds:  # noqa: PLR0124 - not a number
            self.fail(f"{value!r} is not a duration; write 500us, 10ms, 1.5s, 2m or seconds.")
        return float(super().convert(seconds, param, ctx))


class _Said:
    number = 0  # written so far


def say(text: str) -> None:
    """Write a message on standard error."""
    _say(printable(text))


def warn(text: str) -> None:
    """Write a message about what is lost, missing or wrong; coloured on terminals."""
    look = look_of(sys.stderr)
    _say(f"{look.warning}{printable(text)}{look.end}")


def _say(text: str) -> None:
    _Said.number += 1
    progress.clear()
    click.echo(text, err=True, color=True)  # click would take colours away


def messages_said() -> int:
    """Return the number of messages that :func:`say` has written."""
    return _Said.number


def run(command: click.Command, name: str) -> NoReturn:
    """Run a command and exit: status 0 on success, 1 on an error (one line), 2 on a usage error.

    An invalid probe is also a usage error; a caret marks the column in its text. A closed pipe ends
    the command quietly with 0. An interrupt exits with 130.
    """
    from usdt.base.errors import LanguageError, TracingError  # noqa: PLC0415

    code: int
    _repair_streams()
    progress.show_on(sys.stderr)
    if f"_{name.upper()}_COMPLETE" in os.environ:
        from usdt.engine.cli.completion.shells import register  # noqa: PLC0415 - a shell asks

        register()
    try:
        code = _call(
            lambda: command.main(prog_name=name, standalone_mode=False, terminal_width=help_width())
        )
    except click.ClickException as err:
        code = _refused(err)
    except click.Abort:
        code = 130
    except BrokenPipeError:
        code = _quiet_end()
    except LanguageError as err:
        code = _misunderstood(err)
    except TracingError as err:
        code = _error(str(err))
    except OSError as err:
        if err.errno == errno.EPIPE:
            code = _quiet_end()
        else:
            unnamed = "write to standard output: " if err.errno == errno.ENOSPC else ""
            where = f"{err.filename}: " if err.filename else unnamed
            code = _error(f"{where}{err.strerror or err}")
    except KeyboardInterrupt:
        code = 130
    except RecursionError:
        code = _error("the input is nested too deeply")
    except MemoryError:
        code = _error("out of memory")
    except Exception as err:
        reason = _unforeseen(err)
        if reason is None:
            raise
        code = reason
    _flush()
    sys.exit(code)


def _unforeseen(err: Exception) -> int | None:
    # Python may raise another exception in place of KeyboardInterrupt: RuntimeError until 3.11 if a
    # class was being made (__set_name__), and whatever a C function makes of it.
    if interrupted():
        return 130
    if isinstance(err, RuntimeError) and str(err) == _NO_THREAD:
        return _error(f"{err}: too little memory or too many threads (ulimit -v, -u)")
    return None


def _repair_streams() -> None:
    # If a standard stream is closed, the next opened file, perhaps a BPF map, would get its number.
    # A terminal without UTF-8 cannot show every name.
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, TextIOWrapper):
        stream = _Messages(2, "w", closefd=False)
        sys.stderr = TextIOWrapper(
            stream,
            encoding=sys.stderr.encoding,
            errors="backslashreplace",
            write_through=True,
        )


_NO_THREAD = "can't start new thread"  # as Python says it


class _Messages(FileIO):
    # Standard error. Results on stdout do not depend on it: a full disk or a closed pipe there is
    # ignored.
    def write(self, data: Any, /) -> int:
        view = memoryview(data)
        size = view.nbytes
        with contextlib.suppress(OSError):
            while view:
                written = super().write(view)
                if written is None:  # another user of the terminal made it non-blocking
                    import select  # noqa: PLC0415 - rare

                    select.select([], [self], [])
                view = view[written or 0 :]
        return size


def _call(function: Callable[[], Any]) -> int:
    try:
        result = function()
    finally:
        progress.clear()
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


def _refused(error: click.ClickException) -> int:
    # click's own text, with our colours.
    shown = StringIO()
    error.show(shown)
    _show_error(shown.getvalue())
    return error.exit_code


def _error(message: str) -> int:
    _show_error(f"Error: {printable(message)}\n")
    return 1


def _show_error(text: str) -> None:
    look = look_of(sys.stderr)
    before, found, message = text.partition("Error:")
    text = f"{before}{look.error}{found}{look.end}{message}" if found else text
    click.echo(text, nl=False, err=True, color=True)


def _misunderstood(error: LanguageError) -> int:
    from usdt.base.errors import ProgramError, with_place  # noqa: PLC0415 - as in _run
    from usdt.engine.language.rendering import caret  # noqa: PLC0415 - only for this message

    click.echo(caret(error), err=True)
    in_program = isinstance(error, ProgramError)
    placed = with_place(error.reason, f"at column {error.column + 1}")
    _error(str(error) if in_program else placed)
    return 2


def _quiet_end() -> int:
    # Python flushes stdout again at exit, and would report the closed pipe.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _flush() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _quiet_end()
