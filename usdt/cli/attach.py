"""``usdt attach``: attach a pinned program to a probe, as libbpf does."""

from __future__ import annotations

import contextlib
import os
import select
from typing import TYPE_CHECKING, Any

import click

from usdt.base.errors import LanguageError, TargetError
from usdt.bpf.link import UprobeMethod
from usdt.engine.cli.click_group import IntegerType, plural, say
from usdt.engine.cli.completion.values import complete_probes
from usdt.engine.cli.options import duration_option, method_option
from usdt.engine.run.loop import StopSignals
from usdt.libbpf.manager import Manager
from usdt.procfs.process import open_pidfd, thread_group

if TYPE_CHECKING:
    from usdt.libbpf.manager import Attachment

__all__ = ("attach",)

_MAX_COOKIE = (1 << 64) - 1

# \b keeps click from filling the paragraph below it.
_HELP = """Attach a pinned BPF program, compiled with libbpf's usdt.bpf.h, to every site of a probe.

\b
bpftool prog loadall OBJECT /sys/fs/bpf/x pinmaps /sys/fs/bpf/x
usdt attach --prog /sys/fs/bpf/x/PROGRAM --specs /sys/fs/bpf/x/__bpf_usdt_specs \\
    --ips /sys/fs/bpf/x/__bpf_usdt_ip_to_spec_id libc libc:setjmp

With -p, TARGET may be omitted: all files of the process are then searched. The program stays
attached until ^C, until the -p process ends, or for the time of -d.
"""


class Number(IntegerType):
    """An unsigned 64-bit number: 7, 0xcafe."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        try:
            number = int(str(value), 0)
        except ValueError:
            self.fail(f"{value!r} is not a number; write 7 or 0xcafe.", param, ctx)
        if not 0 <= number <= _MAX_COOKIE:
            self.fail(f"{value} does not fit in 64 bits.", param, ctx)
        return number


@click.command("attach", help=_HELP)
@click.argument(
    "words",
    metavar="[TARGET] PROVIDER:NAME",
    nargs=-1,
    required=True,
    shell_complete=complete_probes,
)
@click.option(
    "--prog",
    "program",
    required=True,
    metavar="PIN",
    help="Path of the pinned program.",
)
@click.option(
    "--specs", required=True, metavar="PIN", help="Path of its pinned map __bpf_usdt_specs."
)
@click.option("--ips", metavar="PIN", help="Path of its pinned map __bpf_usdt_ip_to_spec_id.")
@click.option("--cookie", type=Number(), default=0, help="Value that bpf_usdt_cookie() returns.")
@click.option(
    "-p", "--pid", type=click.IntRange(1), metavar="PID", help="Attach only in this process."
)
@click.option("--strict", is_flag=True, help="Attach all sites or none, as libbpf does.")
@method_option([way.value for way in UprobeMethod if way is not UprobeMethod.UPROBE_EVENTS])
@duration_option
def attach(**options: Any) -> None:
    """Attach a pinned program until ^C."""
    target, provider, name = _parse(options["words"], options["pid"])
    with (
        contextlib.ExitStack() as stack,
        Manager(options["specs"], options["ips"], via=options["via"]) as manager,
    ):
        end = _End(stack)
        pid = options["pid"] or 0
        if pid:
            pid = thread_group(pid).pid
        attachment = manager.attach(
            options["program"],
            target,
            provider,
            name,
            pid=pid,
            cookie=options["cookie"],
            strict=options["strict"],
        )
        _report(attachment)
        end.wait(pid, options["duration"])


def _parse(words: tuple[str, ...], pid: int | None) -> tuple[str | None, str, str]:
    # Split at the last colon: providers may contain colons, names of probes hardly do.
    if len(words) > 2 or (len(words) == 1 and pid is None):
        raise click.UsageError("expected TARGET PROVIDER:NAME, or -p PID PROVIDER:NAME")
    provider, colon, name = words[-1].rpartition(":")
    if not colon or not name:
        raise LanguageError(words[-1], 0, "expected PROVIDER:NAME")
    return (words[0] if len(words) == 2 else None), provider, name


def _report(attachment: Attachment) -> None:
    for notice in attachment.notices:
        say(notice)
    sites = plural(attachment.sites, "site")
    specs = plural(len(attachment.spec_ids), "spec")
    say(f"attached {sites} with {specs} by {attachment.via}; end with ^C")


class _End:
    # A signal that arrives before wait() also ends it.
    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        stack.callback(os.close, self._reader)
        stack.callback(os.close, writer)
        stack.enter_context(StopSignals(lambda: os.write(writer, b"x")))

    def wait(self, pid: int, duration: float | None) -> None:
        """Wait for a signal, the end of the process, or ``duration`` seconds."""
        poller = select.poll()
        poller.register(self._reader, select.POLLIN)
        if pid:
            try:
                pidfd = open_pidfd(pid)
            except TargetError:  # it has ended
                return
            self._stack.callback(os.close, pidfd)
            poller.register(pidfd, select.POLLIN)
        poller.poll(None if duration is None else duration * 1000)
