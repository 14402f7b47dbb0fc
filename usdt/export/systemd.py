"""Messages to the service manager, as sd_notify(3) sends them."""

from __future__ import annotations

import os
import socket

__all__ = ("notify",)


def notify(state: str) -> None:
    """Send a state, ``READY=1``, if a service manager waits for it; else do nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto(state.encode(), address)
    except OSError:  # the manager is gone: there is nobody to tell
        return
