"""``usdt decode``: decode the argument specs of notes, for any CPU."""

from __future__ import annotations

import json
import sys

import click

from usdt.arch.operands import MODULES, arch_of
from usdt.base.errors import TargetError
from usdt.base.machine import KERNEL_MACHINE
from usdt.base.text import printable
from usdt.cli.files.info import operand_line
from usdt.probes.argspec import parse_arguments

__all__ = ("decode",)

# Other names of CPUs: Debian's, and variants that uname prints.
_SYNONYMS = {
    "amd64": "x86_64",
    "arm64": "aarch64",
    "armhf": "arm",
    "armel": "arm",
    "armv7l": "arm",
    "i686": "i386",
    "loong64": "loongarch64",
    "ppc64el": "ppc64le",
}


# An operand may begin with a minus, like an option.
@click.command("decode", context_settings={"ignore_unknown_options": True})
@click.option(
    "--machine",
    metavar="CPU",
    default=KERNEL_MACHINE,
    help="CPU that the file is for (default: this machine's).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per SPEC.")
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True)
def decode(machine: str, specs: tuple[str, ...], *, as_json: bool) -> None:
    """Show the operands of an argument spec, such as "-4@%eax 8@-24(%rbp)".

    SPEC is an argument spec as readelf -n and usdt list show it. Its syntax depends on the CPU. CPU
    is a name as uname -m prints it: x86_64, aarch64, s390x, ppc64le, riscv64, mips64el, …
    """
    name = _SYNONYMS.get(machine, machine)
    if arch_of(name) is None:
        known = ", ".join(MODULES)
        raise TargetError(f"unknown CPU {printable(machine)}; known are {known}")
    for spec in specs:
        if spec.startswith("--"):
            raise click.NoSuchOption(spec)
        operands = parse_arguments(spec, name)
        if as_json:
            shown = {"machine": name, "args": spec, "operands": [one.to_json() for one in operands]}
            sys.stdout.write(json.dumps(shown) + "\n")
        else:
            sys.stdout.writelines(
                f"arg{index:<3} {operand_line(operand)}\n" for index, operand in enumerate(operands)
            )
