"""Programs as Debian ships them, started for tests: whom one talks to, and PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from kept_builds import compile_in
from patience import patient
from skips import need_program
from tracing_tools import until

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("PATIENCE", "Cluster", "Dialogue", "backend", "busy", "running_cluster")

PATIENCE = 60.0  # seconds; a cluster takes two to make on a quiet machine


class Dialogue:
    """A program that is told lines and answers in lines; a context manager."""

    def __init__(self, *words: object, **options: Any) -> None:
        """Start it, in a session of its own."""
        self.process = subprocess.Popen(
            [*map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        )

    @property
    def pid(self) -> int:
        """The process ID."""
        return self.process.pid

    def say(self, line: str) -> None:
        """Tell it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self, word: str) -> str:
        """Wait for its line that begins with word, and return the rest of that line."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return line.removeprefix(word).strip()
        msg = f"{self.process.args!r} ended before it said {word!r}"
        raise AssertionError(msg)

    def end(self) -> None:
        """Close its input and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(patient(100))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(patient(100))
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class Cluster:
    """A PostgreSQL server of our own, reached by a socket in its folder only."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self.server = programs / "postgres"
        self.psql = programs / "psql"

    def session(self) -> Dialogue:
        """A client of the server that answers what it is asked."""
        words = ("-X", "-q", "-A", "-t", "-h", self.folder, "-U", "postgres", "-d", "postgres")
        return Dialogue(self.psql, *words, env={"LC_ALL": "C", "HOME": str(self.folder)})


def _postgres_programs() -> Path:
    need_program("psql", "postgresql")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        pytest.skip("needs the program postgres: apt-get install postgresql")
    with contextlib.suppress(KeyError):
        pwd.getpwnam("postgres")
        return found[-1].parent
    pytest.skip("needs the user postgres: apt-get install postgresql")


@contextlib.contextmanager
def running_cluster(*more: str) -> Iterator[Cluster]:
    """A running server, gone with its files at the end; a skip where there is no PostgreSQL.

    ``more``: settings, "fsync=on".
    """
    if os.geteuid() != 0:
        pytest.skip("needs root")
    programs, user = _postgres_programs(), pwd.getpwnam("postgres")
    become = [need_program("setpriv", "util-linux"), f"--reuid={user.pw_uid}"]
    become += [f"--regid={user.pw_gid}", "--clear-groups"]
    folder = Path(tempfile.mkdtemp(prefix="usdt-postgres-"))
    server = None
    try:
        os.chown(folder, user.pw_uid, user.pw_gid)
        data = folder / "data"
        quiet: dict[str, Any] = {"cwd": folder, "env": {"LC_ALL": "C", "PATH": os.environ["PATH"]}}
        _make_data(data, [*become, programs / "initdb"])
        settings = ("fsync=off", "listen_addresses=", f"unix_socket_directories={folder}", *more)
        words = [word for setting in settings for word in ("-c", setting)]
        with (folder / "log").open("w") as log:
            server = subprocess.Popen(
                [*become, programs / "postgres", "-D", data, *words],
                stdout=log,
                stderr=log,
                **quiet,
            )
        until(lambda: list(folder.glob(".s.PGSQL.*[0-9]")), "the server", timeout=PATIENCE)
        made = Cluster(folder, programs)
        until(lambda: _answers(made), "the server to answer", timeout=PATIENCE)
        yield made
    finally:
        if server is not None:
            server.send_signal(signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(patient(100))
            server.kill()
            server.wait(patient(100))
        shutil.rmtree(folder)


@contextlib.contextmanager
def busy(cluster: Cluster) -> Iterator[None]:
    """Two clients of pgbench that keep the server busy."""
    words = [need_program("pgbench", "postgresql-contrib"), "-h", cluster.folder, "-U", "postgres"]
    more: dict[str, Any] = {"env": {"LC_ALL": "C", "PATH": os.environ["PATH"]}}
    subprocess.run([*words, "-i", "-q", "postgres"], check=True, capture_output=True, **more)
    clients = subprocess.Popen(
        [*words, "-T", "600", "-c", "2", "postgres"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **more,
    )
    try:
        yield
    finally:
        clients.kill()
        clients.wait(patient(100))


# initdb runs as another user, who has no way to the folder where what is made is kept.
_INITDB = """set -e
made=$PWD/data.tar
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
chown postgres "$folder"
cd "$folder"
LC_ALL=C "$@" -D data -A trust -N --no-instructions >/dev/null
tar -cSf "$made" data
"""


def _make_data(data: Path, initdb: list[str | Path]) -> None:
    """Have a folder for a server's data, by an archive of one: initdb takes as long as most tests.

    ``initdb``: the command.
    """
    with tempfile.TemporaryDirectory() as folder:
        compile_in(Path(folder), ["sh", "-c", _INITDB, "sh", *initdb])
        subprocess.run(["tar", "-C", data.parent, "-xf", f"{folder}/data.tar"], check=True)


def _answers(cluster: Cluster) -> bool:
    with cluster.session() as session:
        # A server that is starting refuses a session, which ends before or after it is told a line.
        with contextlib.suppress(AssertionError, BrokenPipeError):
            session.say("select 'ready';")
            return session.hear("ready") == ""
        return False


def backend(session: Dialogue) -> int:
    """The process that serves a session."""
    session.say("select 'backend ' || pg_backend_pid();")
    return int(session.hear("backend "))
