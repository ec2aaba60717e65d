"""No network but this machine: a socket that leaves it raises at once, so no test can depend on the internet."""

import ipaddress
import socket
import sys
from typing import Any


class NoNetworkError(OSError):
    """A test tried to reach another machine."""


def _check(host: Any) -> None:
    text = host.decode() if isinstance(host, bytes) else str(host or "localhost")
    try:
        local = ipaddress.ip_address(text.split("%")[0]).is_loopback
    except ValueError:
        local = text in ("localhost", "localhost.localdomain", socket.gethostname())
    if not local:
        raise NoNetworkError(f"tests run without a network, but {text} was asked for")


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Python calls this before it connects a socket or looks up a name."""
    if event == "socket.connect" and arguments[0].family != socket.AF_UNIX:
        _check(arguments[1][0])
    elif event == "socket.getaddrinfo":
        try:
            _check(arguments[0])
        except NoNetworkError as error:
            raise socket.gaierror(socket.EAI_NONAME, str(error)) from error


def guard() -> None:
    """Let sockets reach loopback addresses and AF_UNIX only."""
    sys.addaudithook(_audit)
