"""Command lines that reach a machine, and the one that a machine runs.

No shell runs on this side: a template is split into words, and a node's name stays inside its word.
The far end's command is a single word of base64 and plain quotes, which every login shell leaves as
it is.
"""

from __future__ import annotations

import base64
import json
import os
import pkgutil
import shlex
import shutil
import sys
import zlib
from typing import TYPE_CHECKING, Any

from usdt.base.errors import TargetError
from usdt.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("TRANSPORTS", "far_command", "template_words", "transport_words")

_NODE, _COMMAND = "{node}", "{command}"

#: The transports that have a name. The far end's command is added as the last word.
TRANSPORTS = {
    "ssh": (
        "ssh -T -o BatchMode=yes -o ConnectTimeout={timeout} -o ServerAliveInterval=10 -- {node}"
    ),
    "clush": "clush -N -w {node}",
    "kubectl": "kubectl exec -i {node} -- sh -c",
    "srun": "srun --quiet --ntasks=1 --nodelist={node} sh -c",
}

_PACKAGES = {
    "ssh": "openssh-client",
    "clush": "clustershell",
    "kubectl": "kubectl",
    "srun": "slurm-client",
}

# Finds a Python that is recent enough. It has no single quotes, and no exclamation mark for csh.
_FIND_PYTHON = (
    "for p in python3 /usr/bin/python3 python3.14 python3.13 python3.12 python3.11; do "
    'if "$p" -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then '
    'exec "$p" -I -S -c "import base64, sys, zlib; '
    'exec(zlib.decompress(base64.b64decode(sys.argv[1])))" "$1" "$2"; fi; done; '
    'v=$(python3 -c "import platform; print(platform.python_version())" 2>/dev/null); '
    'echo "usdt-fleet $3 fail needs Python 3.11 or newer, found ${v:-none}"; exit 1'
)


def template_words(via: str, timeout: float) -> list[str]:
    """Return the words of a transport: of its name, or of a template.

    Raises:
        TargetError: the template cannot be split into words, has none, does not name the machine,
            or its program is not here.
    """
    text = TRANSPORTS.get(via, via).replace("{timeout}", str(max(1, round(timeout))))
    try:
        words = shlex.split(text)
    except ValueError as err:
        raise TargetError(f"--via {printable(via)}: {err}") from err
    if not words:
        raise TargetError("--via: empty; give ssh, clush, kubectl, srun or a command with {node}")
    if not any(_NODE in word for word in words):
        raise TargetError(
            f"--via {printable(via)}: has no {{node}}: every machine would be the same one"
        )
    words[0] = _program(words[0], via)
    return words if any(_COMMAND in word for word in words) else [*words, _COMMAND]


def _program(name: str, via: str) -> str:
    # Returns the path of a transport's program; clush may have come along with ClusterShell.
    beside = os.path.dirname(sys.executable) if name == "clush" else ""  # noqa: PTH120 - text
    found = shutil.which(name) or (shutil.which(name, path=beside) if beside else None)
    if found is None:
        hint = f": install {_PACKAGES[name]}" if name in _PACKAGES else ""
        raise TargetError(
            f"--via {printable(via)}: there is no program {printable(name)} on this machine{hint}"
        )
    return found


def transport_words(template: Sequence[str], node: str, command: str) -> list[str]:
    """Return the command line that runs ``command`` on a node."""
    return [word.replace(_NODE, node).replace(_COMMAND, command) for word in template]


def far_command(request: dict[str, Any], *, sudo: bool = False) -> str:
    """Return the command for the machine's shell: it serves one request.

    Args:
        request: see :func:`usdt.fleet.far_end.main`.
        sudo: run it as root, by ``sudo -n``.
    """
    source = pkgutil.get_data("usdt.fleet", "far_end.py") or b""
    program = base64.b64encode(zlib.compress(source, 9)).decode()
    # The program reads its request as a word, so that it needs no quotes.
    text = base64.b64encode(json.dumps(request).encode()).decode()
    words = ["sh", "-c", _FIND_PYTHON, "usdt-fleet", program, text, request["word"]]
    return shlex.join(["exec", *(["sudo", "-n"] if sudo else []), *words])
