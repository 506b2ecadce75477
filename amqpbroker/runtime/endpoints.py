"""Where a listener binds: its `bind` text as socket addresses, and the listening sockets made from them.

`*:port` is one IPv6 socket that takes IPv4 as well, or an IPv4 socket where the machine has no IPv6.
`localhost:port` is 127.0.0.1 and ::1, each if it exists, on one port. Every name is bound at all its addresses.
Must not know what is served on the sockets.
"""

import errno
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

BACKLOG_STOCK = 1024  # For listeners that name none; the kernel cuts it to net.core.somaxconn.
FREE_PORT_TRIES = 20  # A free port of one address may be taken at the next; more tries than this mean a full machine.
UNIX_MODE = 0o600  # Whoever may open the file is let in, so only the broker's own user may.

TAKEN = f"{os.strerror(errno.EADDRINUSE)}; is another broker running? Choose another bind"

ABSENT = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT})

SocketAddress = tuple[socket.AddressFamily, tuple[str, int]]


class ListenError(Exception):
    """A listener cannot be opened; the text is one line for the operator."""


def split_bind(bind: str) -> tuple[str, int]:
    """Host and port of "host:port", "*:port" or "[::1]:port"; ListenError when it is none of these."""
    host, colon, port = bind.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ListenError(f'"{bind}" is not host:port, *:port, [address]:port or unix:path')
    return host, int(port)


def open_sockets(bind: str, backlog: int) -> list[socket.socket]:
    """Listening sockets for `bind`, not blocking, all on one port; ListenError when one cannot be had."""
    if bind.startswith("unix:"):
        return [_open_unix(Path(bind.removeprefix("unix:")), backlog)]
    host, port = split_bind(bind)
    try:
        return open_tcp(host, port, backlog)
    except OSError as error:
        raise _refused(bind, error) from error


def open_tcp(host: str, port: int, backlog: int = BACKLOG_STOCK) -> list[socket.socket]:
    """Listening sockets for every address of `host`, all on one port; OSError when one cannot be had."""
    if host in ("*", ""):
        return [_open_any(port, backlog)]
    for _ in range(FREE_PORT_TRIES if port == 0 else 1):
        try:
            return _open_all(_resolve(host, port), backlog)
        except OSError as error:
            taken = error
            if error.errno != errno.EADDRINUSE:
                raise
    raise taken


def _open_any(port: int, backlog: int) -> socket.socket:
    if socket.has_ipv6:
        try:
            return _open_one(socket.AF_INET6, ("::", port), backlog, v6only=False)
        except OSError as error:
            if error.errno not in ABSENT:
                raise
    return _open_one(socket.AF_INET, ("0.0.0.0", port), backlog)  # noqa: S104  "*" asks for it.


def _resolve(host: str, port: int) -> list[SocketAddress]:
    if host == "localhost":  # Not by the resolver: many a hosts file has only one of the two.
        return [(socket.AF_INET, ("127.0.0.1", port)), (socket.AF_INET6, ("::1", port))]
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [(family, (str(address[0]), port)) for family, _, _, _, address in dict.fromkeys(found)]


def _open_all(addresses: list[SocketAddress], backlog: int) -> list[socket.socket]:
    """Bind them all on one port; those that the machine does not have are left out, but not all."""
    opened: list[socket.socket] = []
    absent: OSError | None = None
    try:
        for family, (host, port) in addresses:
            if port == 0 and opened:
                port = opened[0].getsockname()[1]
            try:
                opened.append(_open_one(family, (host, port), backlog))
            except OSError as error:
                if error.errno not in ABSENT:
                    raise
                absent = error
    except OSError:
        for one in opened:
            one.close()
        raise
    if absent is not None and not opened:
        raise absent
    return opened


def _open_one(
    family: socket.AddressFamily, address: tuple[str, int], backlog: int, *, v6only: bool = True
) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restart must not wait for the last life's connections in TIME_WAIT.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(v6only))
        made.bind(address)
        made.listen(backlog)
        made.settimeout(0)
    except OSError:
        made.close()
        raise
    return made


def _open_unix(path: Path, backlog: int) -> socket.socket:
    _remove_stale(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(str(path))
        path.chmod(UNIX_MODE)  # Before listen: until then nobody can connect.
        made.listen(backlog)
        made.settimeout(0)
    except OSError as error:
        made.close()
        raise _refused(f"unix:{path}", error) from error
    return made


def _remove_stale(path: Path) -> None:
    """Take away the socket file of a process that is gone; ListenError when somebody lives there."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return  # Nothing there, or nothing we may see: bind says which.
    if not stat.S_ISSOCK(mode):
        raise ListenError(f"cannot listen on unix:{path}: there is a file that is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        answer = probe.connect_ex(str(path))
    if answer != errno.ECONNREFUSED:
        raise ListenError(f"cannot listen on unix:{path}: {TAKEN}")
    with suppress(OSError):
        path.unlink()


def _refused(bind: str, error: OSError) -> ListenError:
    reason = TAKEN if error.errno == errno.EADDRINUSE else error.strerror or error
    return ListenError(f"cannot listen on {bind}: {reason}")


def describe(address: object, family: int, path: str = "") -> str:
    """A socket's address as one word of a log line: 127.0.0.1:5672, [::1]:5672 or unix:path."""
    if family == socket.AF_UNIX or not isinstance(address, tuple):
        return f"unix:{path or address}"
    host, port = str(address[0]), address[1]
    if host.startswith("::ffff:"):
        host = host.removeprefix("::ffff:")  # An IPv4 peer at a dual-stack socket.
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
