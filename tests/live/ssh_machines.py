"""Six machines with an sshd each: network namespaces, or loopback addresses where those are not
allowed. Each receives the toolkit; another one has compiled it for all.

Keys, configuration and the toolkit's copies are in a folder of the test. ``environment`` makes
``ssh`` the system's own with that configuration.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, Self

from fleets import hits_program, run_once
from skips import need_program
from tracing_tools import until

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("SshMachines",)

_PORT = 2222
_SSHD = "/usr/sbin/sshd"
_NETWORK = "198.18"  # for tests of network devices: nobody's address


class SshMachines:
    """Machines that answer ssh; a context manager.

    Attributes:
        nodes: their addresses as a node set.
        few: the first four.
        addresses: their addresses.
        environment: for commands that use ssh.
    """

    def __init__(self, folder: Path, number: int = 6) -> None:
        need_program("ssh", "openssh-client")
        need_program(_SSHD, "openssh-server")
        self.folder = folder
        self._stack = contextlib.ExitStack()
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._spaces = [f"usdt-{os.getpid()}-{index}" for index in range(1, number + 1)]
        first = ["ip", "netns", "add", self._spaces[0]]
        self.apart = subprocess.run(first, capture_output=True, check=False).returncode == 0
        self.nodes, self.few = (
            f"{_NETWORK}.[1-{count}].2" if self.apart else f"127.0.5.[1-{count}]"
            for count in (number, 4)
        )
        self.addresses = [
            f"{_NETWORK}.{index}.2" if self.apart else f"127.0.5.{index}"
            for index in range(1, number + 1)
        ]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._close)
            self._configure()
            count = ("count", "-c", hits_program(), "threads:hit")
            calls = ("kprobe", "trace", "syscall:getppid", "-d", "0.1")
            unpacked = run_once(self.folder / "first", count, calls)
            for index, (space, address) in enumerate(
                zip(self._spaces, self.addresses, strict=True), 1
            ):
                there = self.folder / f"{index}/usdt-fleet" / unpacked.name
                shutil.copytree(unpacked, there, copy_function=os.link)
                self._start(index, space, address)
            for address in self.addresses:
                until(lambda address=address: _answers(address), f"sshd at {address}")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def stop(self, address: str) -> None:
        """End the sshd of a machine; connections that there are stay."""
        server = self._servers[address]
        server.terminate()
        server.wait()

    def cut(self, address: str) -> None:
        """Cut the link of a machine: no packet comes through any more, and nobody is told."""
        index = self.addresses.index(address) + 1
        _run("ip", "-n", self._spaces[index - 1], "link", "set", "eth0", "down")

    def _configure(self) -> None:
        for name in ("host", "user"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))
        shutil.copy(self.folder / "user.pub", self.folder / "authorized")
        (self.folder / "ssh_config").write_text(
            f"Port {_PORT}\nUser root\nIdentityFile {self.folder}/user\nIdentitiesOnly yes\n"
            "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
        )
        own = self.folder / "bin"
        own.mkdir()
        (own / "ssh").write_text(
            f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/ssh_config "$@"\n'
        )
        (own / "ssh").chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{own}:{os.environ['PATH']}"}
        with contextlib.suppress(FileExistsError):
            os.mkdir("/run/sshd", 0o755)  # noqa: PTH102 - sshd wants it

    def _start(self, index: int, space: str, address: str) -> None:
        prefix: list[str] = []
        if self.apart:
            if index > 1:
                _run("ip", "netns", "add", space)
            outside = self._outside(index)
            _run("ip", "link", "add", outside, "type", "veth", "peer", "eth0", "netns", space)
            _run("ip", "addr", "add", f"{_NETWORK}.{index}.1/30", "dev", outside)
            _run("ip", "link", "set", outside, "up")
            _run("ip", "-n", space, "addr", "add", f"{address}/30", "dev", "eth0")
            _run("ip", "-n", space, "link", "set", "eth0", "up")
            prefix = ["ip", "netns", "exec", space]
        (self.folder / f"sshd{index}").write_text(
            f"ListenAddress {address}:{_PORT}\nHostKey {self.folder}/host\nPidFile none\n"
            f"AuthorizedKeysFile {self.folder}/authorized\nStrictModes no\nUsePAM no\n"
            "PermitRootLogin prohibit-password\nPasswordAuthentication no\n"
            # In the home of the user who runs these tests, the shell would read what is theirs.
            f"SetEnv XDG_CACHE_HOME={self.folder}/{index} HOME={self.folder}/{index}\n"
        )
        self._servers[address] = subprocess.Popen(
            [*prefix, _SSHD, "-D", "-f", str(self.folder / f"sshd{index}")],
            stderr=subprocess.DEVNULL,
        )

    def _close(self) -> None:
        for server in self._servers.values():
            server.terminate()
            server.wait()
        for index, space in enumerate(self._spaces if self.apart else (), 1):
            # A connection over a link that is cut would keep its namespace, and so the addresses.
            found = subprocess.run(["ip", "netns", "pids", space], capture_output=True, check=False)
            for pid in map(int, found.stdout.split()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for words in (["link", "del", self._outside(index)], ["netns", "del", space]):
                subprocess.run(["ip", *words], capture_output=True, check=False)

    def _outside(self, index: int) -> str:
        # The name of the link's end that is here.
        return f"usdt{os.getpid() % 10000}-{index}"


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def _answers(address: str) -> bool:
    try:
        with socket.create_connection((address, _PORT), timeout=1):
            return True
    except OSError:
        return False
