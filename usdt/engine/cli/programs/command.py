"""``usdt run`` and ``kprobe run``, which are one command."""

from __future__ import annotations

from typing import Any

import click

from usdt.engine.cli.click_group import version_option
from usdt.engine.cli.target_options import program_process_option

__all__ = ("run",)


class _Format(click.Choice):  # type: ignore[type-arg]  # click 8.1 has none
    # Says in bpftrace's words that there is no such format.
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value not in self.choices:
            expected = " or ".join(self.choices)
            raise click.UsageError(f'Invalid output format "{value}": expected {expected}', ctx)
        return super().convert(value, param, ctx)


def _misspelt(name: str, known: list[str]) -> bool:
    # Whether an option of the command is meant, as click then says.
    from difflib import get_close_matches  # noqa: PLC0415 - few programs have options

    return bool(get_close_matches(name, known, cutoff=0.75))


class _Command(click.Command):
    # Options that are none of the command's are those of the program, as behind a --.
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        known = [name for one in options for name in one.opts]
        valued = {name for one in options if not one.is_flag and not one.count for name in one.opts}
        end = args.index("--") if "--" in args else len(args)
        own: list[str] = []
        given: list[str] = []
        for before, word in zip(["", *args], args[:end], strict=False):
            name = word.partition("=")[0]
            of_program = name.startswith("--") and name not in known and before not in valued
            (given if of_program and not _misspelt(name, known) else own).append(word)
        last = own[-1] if own and "--" not in args and "".join(own[-2:-1]) not in valued else ""
        if last in valued or (last[:1] == "-" != last[1:2] and f"-{last[-1]}" in valued):
            return super().parse_args(ctx, own)  # its value is missing, and is not the --
        return super().parse_args(ctx, [*own, "--", *args[end + 1 :], *given])


# \b keeps click from filling the paragraph below it.
_HELP = """Run a program in bpftrace's language.

SCRIPT is a file, or - for standard input. ARGS are $1, $2 and so on. Probes of programs and
libraries fire in the processes of -p and -c alone; those of the kernel fire everywhere.

\b
usdt run script.bt
usdt run -e 'uprobe:libc:malloc { @[comm] = count(); }'
usdt run -e 'profile:hz:99 { @[kstack] = count(); }'
"""


@click.command(cls=_Command, help=_HELP)
@click.argument("words", nargs=-1, metavar="[SCRIPT] [ARGS]...")
@click.option("-e", "text", metavar="PROGRAM", help="Run this text instead of a script.")
@program_process_option
@click.option(
    *("-c", "--command", "--cmd", "command"),
    metavar="COMMAND",
    help="Start this command and trace it.",
)
@click.option(
    *("-f", "form"),
    type=_Format(("text", "json")),
    default="text",
    help="Format of the output.",
)
@click.option("-q", "--quiet", is_flag=True, help="Do not say how many probes are attached.")
@click.option(
    *("-k", "--warnings", "helper_errors"),
    is_flag=True,
    help="Report memory that cannot be read and keys that maps do not have; hits take longer.",
)
@click.option("--no-warnings", is_flag=True, help="Leave out warnings, but not what was lost.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
@click.option(
    *("-B", "buffering"),
    type=click.Choice(("line", "full", "none")),
    default="line",
    help="When to write: line what has been printed together, none each text, full 64 KiB.",
)
@click.option("-I", "folders", multiple=True, metavar="DIR", help="Look for headers here as well.")
@click.option(
    *("--include", "headers"), multiple=True, metavar="FILE", help="Include this header before."
)
@click.option(
    *("-l", "listing"),
    is_flag=True,
    help="List probes instead: those of the program, or that match a pattern such as 't:sched:*'.",
)
@click.option("--unsafe", is_flag=True, help="Allow system(), signal() and the like.")
@click.option("--dry-run", is_flag=True, help="Attach the probes, then end: nothing runs.")
@click.option("--info", is_flag=True, help="Show what of this kernel programs can use.")
@click.option(
    *("--test", "mode"),
    flag_value="test",
    help="Run the probes test:NAME alone, and report which return 0.",
)
@click.option(
    *("--bench", "mode"),
    flag_value="bench",
    help="Run the probes bench:NAME alone, and report what a run costs.",
)
@click.option(
    *("--mode", "--test-mode", "mode"), type=click.Choice(("bench", "test")), hidden=True
)  # bpftrace's names
@click.option("--usdt-file-activation", is_flag=True, hidden=True)  # as it always is here
@click.option("-v", "--verbose", count=True, help="With -l: show arguments. Twice: instructions.")
@version_option
def run(**values: Any) -> int:
    """Run a program in bpftrace's language."""
    from usdt.engine.cli.programs.run import run_program  # noqa: PLC0415 - not for --help

    return run_program(values)
