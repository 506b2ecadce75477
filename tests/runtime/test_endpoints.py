"""Where listeners bind: dual stack, both loopbacks, Unix sockets, and what is said when it cannot be."""

import errno
import socket
import stat
from pathlib import Path

import pytest

from amqpbroker.runtime import endpoints
from amqpbroker.runtime.endpoints import ListenError, describe, open_sockets, split_bind


def port_of(opened: list[socket.socket]) -> int:
    ports = {one.getsockname()[1] for one in opened}
    assert len(ports) == 1
    return int(ports.pop())


def can_connect(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 5).close()
    except OSError:
        return False
    return True


def close(opened: list[socket.socket]) -> None:
    for one in opened:
        one.close()


@pytest.mark.parametrize(
    ("bind", "split"),
    [
        ("localhost:5672", ("localhost", 5672)),
        ("*:0", ("*", 0)),
        ("[::1]:5671", ("::1", 5671)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
    ],
)
def test_bind_is_host_and_port(bind: str, split: tuple[str, int]) -> None:
    assert split_bind(bind) == split


@pytest.mark.parametrize("bind", ["", "5672", ":5672", "host", "host:", "host:x", "host:70000"])
def test_what_is_no_bind_is_refused(bind: str) -> None:
    with pytest.raises(ListenError, match="is not host:port"):
        split_bind(bind)


def test_a_star_is_both_families_on_one_socket() -> None:
    opened = open_sockets("*:0", 10)
    assert len(opened) == 1
    assert can_connect("127.0.0.1", port_of(opened))
    assert can_connect("::1", port_of(opened))
    close(opened)


def test_a_star_is_ipv4_where_there_is_no_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    open_one = endpoints._open_one

    def without(family: socket.AddressFamily, *rest: object, **more: object) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "no IPv6")
        return open_one(family, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(endpoints, "_open_one", without)
    opened = open_sockets("*:0", 10)
    assert [one.family for one in opened] == [socket.AF_INET]
    close(opened)
    opened = open_sockets("localhost:0", 10)
    assert [one.family for one in opened] == [socket.AF_INET]
    close(opened)
    with pytest.raises(ListenError, match="no IPv6"):
        open_sockets("[::1]:0", 10)


def test_localhost_is_both_loopbacks_on_one_port() -> None:
    opened = open_sockets("localhost:0", 10)
    assert [one.getsockname()[0] for one in opened] == ["127.0.0.1", "::1"]
    assert can_connect("127.0.0.1", port_of(opened))
    assert can_connect("::1", port_of(opened))
    close(opened)


def test_localhost_is_not_half_bound() -> None:
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ListenError, match="in use"):
            open_sockets(f"localhost:{port}", 10)
    assert not can_connect("127.0.0.1", port)


def test_a_literal_is_its_own_family_only() -> None:
    opened = open_sockets("[::1]:0", 10)
    assert not can_connect("127.0.0.1", port_of(opened))
    close(opened)


def test_a_taken_port_is_one_clear_line() -> None:
    opened = open_sockets("127.0.0.1:0", 10)
    port = port_of(opened)
    with pytest.raises(ListenError) as refused:
        open_sockets(f"127.0.0.1:{port}", 10)
    assert str(refused.value) == (
        f"cannot listen on 127.0.0.1:{port}: Address already in use; "
        "is another broker running? Choose another bind"
    )
    close(opened)


def test_an_unknown_host_is_one_clear_line() -> None:
    with pytest.raises(ListenError, match=r"cannot listen on no-such-host\.invalid:1: "):
        open_sockets("no-such-host.invalid:1", 10)


def test_a_unix_socket_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"
    opened = open_sockets(f"unix:{path}", 10)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    close(opened)


def test_a_stale_unix_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"
    close(open_sockets(f"unix:{path}", 10))
    assert path.exists()
    close(open_sockets(f"unix:{path}", 10))


def test_a_unix_socket_that_is_served_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"
    opened = open_sockets(f"unix:{path}", 10)
    with pytest.raises(ListenError, match="Address already in use; is another broker running"):
        open_sockets(f"unix:{path}", 10)
    assert path.exists()
    close(opened)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(ListenError, match="not a socket"):
        open_sockets(f"unix:{path}", 10)
    assert path.read_text() == "data"


def test_a_unix_socket_in_no_folder_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match="No such file"):
        open_sockets(f"unix:{tmp_path}/none/broker.sock", 10)


@pytest.mark.parametrize(
    ("address", "family", "word"),
    [
        (("127.0.0.1", 5672), socket.AF_INET, "127.0.0.1:5672"),
        (("::1", 5672, 0, 0), socket.AF_INET6, "[::1]:5672"),
        (("::ffff:10.0.0.1", 5672, 0, 0), socket.AF_INET6, "10.0.0.1:5672"),
        ("", socket.AF_UNIX, "unix:/run/b"),
    ],
)
def test_an_address_is_one_word(address: object, family: int, word: str) -> None:
    assert describe(address, family, "/run/b") == word
