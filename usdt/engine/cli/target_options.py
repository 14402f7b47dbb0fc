"""Options that say whom a command traces: processes, a command, cgroups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from usdt.engine.cli.click_group import combined

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from click.shell_completion import CompletionItem

    from usdt.engine.cli.options import Decorator

__all__ = (
    "pid_option",
    "process_option",
    "program_process_option",
    "target_options",
    "timed_target_options",
)

TIME_UNITS = ("ns", "us", "ms", "s")


_MOST_PID = 1 << 22  # PID_MAX_LIMIT of include/linux/threads.h


def _pids(text: str, read: Callable[..., tuple[int, ...]] | None = None) -> Decorator:
    return click.option(
        *("-p", "--pid", "pids"),
        multiple=True,
        metavar="PID",
        help=text,
        callback=read or _processes,
        shell_complete=_complete_processes,
    )


def _complete_processes(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from usdt.engine.cli.completion.values import complete_processes  # noqa: PLC0415 - for shells

    return complete_processes(context, parameter, incomplete)


def _processes(_context: object, _option: object, given: Sequence[str]) -> tuple[int, ...]:
    # An ID, or the name of processes.
    found: list[int] = []
    for text in given:
        if text.lstrip("+-").isdecimal():
            if int(text) < 1:
                raise click.BadParameter(f"{text} is not in the range x>=1.")
            found.append(int(text))
        else:
            from usdt.procfs.process import processes_named  # noqa: PLC0415 - not for IDs

            found += processes_named(text)
    return tuple(dict.fromkeys(found))


def _processes_as_bpftrace(
    context: object, option: object, given: Sequence[str]
) -> tuple[int, ...]:
    # In the words of bpftrace, which scripts around it look for; it takes no names.
    from usdt.base.errors import TargetNotFound  # noqa: PLC0415 - not for --help

    found: list[int] = []
    for text in given:
        wrong = f"Failed to parse pid: pid '{text}'"
        if text.isdecimal() and not (len(text) < 20 and 0 < int(text) <= _MOST_PID):
            raise TargetNotFound(f"{wrong} out of valid pid range [1,{_MOST_PID}]")
        try:
            found += _processes(context, option, (text,))
        except TargetNotFound as err:
            why = str(err).removeprefix(f"-p {text}: ")
            raise TargetNotFound(f"{wrong} is not a valid decimal number: {why}") from err
    return tuple(dict.fromkeys(found))


#: Adds -p (``pids``) to commands that only read files.
pid_option = _pids("Search the files of this process (ID or name); may be repeated.")


#: Adds -p (``pids``) to commands that trace.
process_option = _pids("Trace this process, by its ID, or all of this name; may be repeated.")


#: The same for programs in bpftrace's language.
program_process_option = _pids(
    "Trace this process, by its ID, or all of this name; may be repeated.", _processes_as_bpftrace
)


def _many(name: str, metavar: str, text: str) -> Decorator:
    return click.option(f"--{name}", f"{name}s", multiple=True, metavar=metavar, help=text)


def _split_units(context: click.Context, _option: object, given: Sequence[str]) -> tuple[str, ...]:
    # Of the values of --unit, the units of systemd; that of times is the parameter ``unit``.
    times = [text for text in given if text in TIME_UNITS]
    if times:
        context.params["unit"] = times[-1]
    return tuple(text for text in given if text not in TIME_UNITS)


_unit_option = _many("unit", "NAME", "Trace in this unit of systemd.")
_unit_or_time_option = click.option(
    *("--unit", "units"),
    multiple=True,
    metavar="ns|us|ms|s|NAME",
    callback=_split_units,
    help="Unit of times, default ns. Any other NAME: trace in this unit of systemd.",
)


def _targets(unit: Decorator) -> Decorator:
    return combined(
        process_option,
        click.option("-c", "--command", metavar="COMMAND", help="Start this command and trace it."),
        click.option("--user", metavar="NAME", help="Run the -c command as this user."),
        click.option("-a", "--all", "all_processes", is_flag=True, help="Trace all processes."),
        click.option("-f", "--follow", is_flag=True, help="Also trace children of -p and -c."),
        _many("container", "NAME|ID", "Trace in this container."),
        _many("pod", "NAMESPACE/NAME", "Trace in the containers of this pod."),
        unit,
        _many("cgroup", "PATH", "Trace in this cgroup (version 2) and those below it."),
        click.option("--exit-code", is_flag=True, help="Exit with the status of the -c command."),
    )


#: Adds -p, -c (``command``), --user, -a (``all_processes``), -f (``follow``), --exit-code,
#: --container (``containers``), --pod, --unit and --cgroup.
target_options = _targets(_unit_option)

#: The same for commands that show times, whose --unit is also the unit of times (``unit``).
timed_target_options = _targets(_unit_or_time_option)
