"""No network but this machine: a socket that leaves it raises at once, so no test can depend on the internet."""

import ipaddress
import socket
from typing import Any

_connect, _connect_ex, _getaddrinfo = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo


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


def guard() -> None:
    """Let sockets reach loopback addresses and AF_UNIX only."""

    def connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX:
            _check(address[0])
        return _connect(self, address)

    def connect_ex(self: socket.socket, address: Any) -> int:
        if self.family != socket.AF_UNIX:
            _check(address[0])
        return _connect_ex(self, address)

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            _check(host)
        except NoNetworkError as error:
            raise socket.gaierror(socket.EAI_NONAME, str(error)) from error
        return _getaddrinfo(host, *args, **kwargs)

    socket.socket.connect = connect  # type: ignore[method-assign]
    socket.socket.connect_ex = connect_ex  # type: ignore[method-assign]
    socket.getaddrinfo = getaddrinfo
