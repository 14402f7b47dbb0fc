"""Find programs as a shell and the kernel do: PATH, and ``#!``.

Source: the kernel's ``fs/binfmt_script.c`` and ``exec_binprm()`` in ``fs/exec.c``; execvp(3).
"""

# Importing pathlib takes 6 ms:
# ruff: noqa: PTH116, PTH119, PTH123

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from usdt.base.errors import TargetError
from usdt.targets.search.libraries import in_root

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("find_program", "program_chain", "resolve_program")

DEFAULT_PROGRAM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_MAX_INTERPRETERS = 5  # exec_binprm()
_INTERPRETER_LINE = 256  # BINPRM_BUF_SIZE, include/uapi/linux/binfmts.h


def find_program(
    name: str, *, root: str = "/", environment: Mapping[str, str] | None = None
) -> str | None:
    """Return the file of a command: the name itself if it has a slash, else a file found on PATH.

    None if there is no executable regular file of this name.

    Args:
        name: name of the command.
        root: "/" or ``/proc/PID/root``; the result is relative to it.
        environment: the environment with PATH; None for that of this process.
    """
    variables = os.environ if environment is None else environment
    search = variables.get("PATH", DEFAULT_PROGRAM_PATH).split(":")
    for path in [name] if "/" in name else [f"{directory or '.'}/{name}" for directory in search]:
        try:
            real = in_root(root, path)
            if stat.S_ISREG(os.stat(real).st_mode) and os.access(real, os.X_OK):
                return path
        except (OSError, TargetError, ValueError):
            continue
    return None


def program_chain(path: str, *, environment: Mapping[str, str] | None = None) -> list[str]:
    """Return the files executed in turn for ``path``: scripts, their interpreters, then a program.

    ``#!/usr/bin/env NAME`` is followed to the program that env executes. A text file without ``#!``
    is run by /bin/sh, as by execvp(3) and shells.

    Raises:
        TargetError: a file of the chain does not exist or cannot be read, or the chain has more
            interpreters than the kernel allows (five).
    """
    chain = [path]
    while len(chain) <= _MAX_INTERPRETERS + 2:
        head = _head(chain[-1], path)
        if head.startswith(b"\x7fELF"):
            return chain
        interpreter, argument = _interpreter(head)
        chain.append(interpreter or "/bin/sh")
        if os.path.basename(interpreter) == "env":
            _head(interpreter, path)
            program = find_program(_env_command(argument), environment=environment)
            if program is None:
                return chain
            chain.append(program)
    raise TargetError(f"{path}: more than {_MAX_INTERPRETERS} nested interpreters (#!)")


def resolve_program(path: str, *, environment: Mapping[str, str] | None = None) -> str:
    """Return the program that finally runs for ``path``; raises as :func:`program_chain`."""
    return program_chain(path, environment=environment)[-1]


def _head(path: str, given: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read(_INTERPRETER_LINE)
    except (OSError, ValueError) as err:
        reason = err.strerror if isinstance(err, OSError) else str(err)
        subject = given if path == given else f"{given}: its interpreter {path}"
        raise TargetError(f"{subject}: {reason}") from err


def _interpreter(head: bytes) -> tuple[str, str]:
    # The kernel truncates the line to 256 bytes and passes all text after the interpreter as one
    # argument.
    if not head.startswith(b"#!"):
        return "", ""
    words = head[2:].partition(b"\n")[0].partition(b"\0")[0].strip(b" \t").split(None, 1)
    decoded = [os.fsdecode(word) for word in words]
    return (decoded[0] if decoded else ""), (decoded[1] if len(decoded) > 1 else "")


def _env_command(argument: str) -> str:
    # In "#!/usr/bin/env A B", "A B" is one argument; only -S splits it.
    options, split, rest = argument.partition("S")
    if not (split and options.startswith("-") and " " not in options):
        return "" if argument.startswith("-") or "=" in argument else argument
    words = rest.split()
    return next((word for word in words if word[0] != "-" and "=" not in word), "")
