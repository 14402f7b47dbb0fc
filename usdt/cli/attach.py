"""``usdt attach``: somebody else's pinned program, attached to a probe as libbpf would."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import TYPE_CHECKING, Any

import click

from usdt.base.errors import LanguageError, TargetError
from usdt.bpf.link import UprobeMethod
from usdt.engine.cli.click_group import escaped
from usdt.libbpf.manager import Manager
from usdt.procfs import process

if TYPE_CHECKING:
    from usdt.libbpf.manager import Attachment

__all__ = ("attach",)

_COOKIES = 1 << 64

# \b keeps click from filling the paragraph below it.
_HELP = """Attach a pinned BPF program, compiled with libbpf's usdt.bpf.h, to every site of a probe.

\b
bpftool prog loadall OBJECT /sys/fs/bpf/x pinmaps /sys/fs/bpf/x
usdt attach --prog /sys/fs/bpf/x/PROGRAM --specs /sys/fs/bpf/x/__bpf_usdt_specs \\
    --ips /sys/fs/bpf/x/__bpf_usdt_ip_to_spec_id libc libc:setjmp

TARGET may be left out with -p: every file of the process is then searched.
Stays until ^C, the end of the process of -p, or -d. Detaches then.
"""


class Number(click.ParamType[int]):
    """A number of 64 bits: 7, 0xcafe."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        try:
            number = int(str(value), 0)
        except ValueError:
            self.fail(f"{value!r} is not a number; write 7 or 0xcafe.", param, ctx)
        if not 0 <= number < _COOKIES:
            self.fail(f"{value} does not fit 64 bits.", param, ctx)
        return number


@click.command("attach", help=_HELP)
@click.argument("words", metavar="[TARGET] PROVIDER:NAME", nargs=-1, required=True)
@click.option("--prog", "program", required=True, metavar="PIN", help="The program.")
@click.option("--specs", required=True, metavar="PIN", help="Its map __bpf_usdt_specs.")
@click.option("--ips", metavar="PIN", help="Its map __bpf_usdt_ip_to_spec_id.")
@click.option("--cookie", type=Number(), default=0, help="What bpf_usdt_cookie() answers.")
@click.option("-p", "--pid", type=click.IntRange(1), help="Only this process.")
@click.option("--strict", is_flag=True, help="All or nothing, as libbpf.")
@click.option(
    "--via", type=click.Choice([way.value for way in UprobeMethod]), help="How to attach."
)
@click.option(
    "-d", "--duration", type=click.FloatRange(0, min_open=True), help="Stop after so many seconds."
)
def attach(**options: Any) -> None:
    """Attach somebody else's program until ^C."""
    target, provider, name = _words(options["words"], options["pid"])
    stop = _Stop()
    with Manager(options["specs"], options["ips"], via=options["via"]) as manager:
        pid = options["pid"] or 0
        if pid:
            pid = process.thread_group(pid).pid
        attachment = manager.attach(
            options["program"],
            target,
            provider,
            name,
            pid=pid,
            cookie=options["cookie"],
            strict=options["strict"],
        )
        _tell(attachment)
        stop.wait(pid, options["duration"])


def _words(words: tuple[str, ...], pid: int | None) -> tuple[str | None, str, str]:
    # A colon may be in a path, and in a provider's name, but hardly in a probe's.
    if len(words) > 2 or (len(words) == 1 and pid is None):
        raise click.UsageError("give TARGET and PROVIDER:NAME, or -p and PROVIDER:NAME")
    provider, colon, name = words[-1].rpartition(":")
    if not colon or not name:
        raise LanguageError(words[-1], 0, "a probe is PROVIDER:NAME")
    return (words[0] if len(words) == 2 else None), provider, name


def _tell(attachment: Attachment) -> None:
    for notice in attachment.notices:
        click.echo(escaped(notice), err=True)
    sites, specs = attachment.sites, len(attachment.spec_ids)
    click.echo(
        f"attached {sites} site{'s' * (sites != 1)} with {specs} spec{'s' * (specs != 1)} "
        f"by {attachment.via}; end with ^C",
        err=True,
    )


class _Stop:
    # SIGINT and SIGTERM end the wait, also one that has not begun yet.
    def __init__(self) -> None:
        self._stopped = False
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._take)

    def _take(self, _number: int, _frame: object) -> None:
        if self._stopped:  # the second time: at once
            raise KeyboardInterrupt
        self._stopped = True
        os.write(self._write, b"x")

    def wait(self, pid: int, duration: float | None) -> None:
        """Until a signal, the end of the process or of the time."""
        poller = select.poll()
        poller.register(self._read, select.POLLIN)
        pidfd = None
        if pid:
            try:
                pidfd = process.open_pidfd(pid)
            except TargetError:
                return
            poller.register(pidfd, select.POLLIN)
        deadline = None if duration is None else time.monotonic() + duration
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        poller.poll(timeout)
        if pidfd is not None:
            os.close(pidfd)
