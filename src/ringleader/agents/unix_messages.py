"""Messages of one JSON object each over a Unix socket, with file descriptors beside them.

Between a host agent and the ranks and MPI proxies of its host. The sockets keep the bounds of messages
(SOCK_SEQPACKET), and each side asks the kernel whose process the other one is. A long message, such as the
members of a large generation, does not fit into a socket's buffer: it is passed as a memfd.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from array import array

from ringleader.agents.light_imports import Any, Callable, Iterator, Sequence, socket, suppress

RANKS_SOCKET_NAME = "warm.sock"
"""The socket of a fork server that forks ranks (`fork_server`), in its host's part of a directory."""
LARGEST = 32 * 1024
"""Bytes of a message in a packet at most, far below the buffers of sockets; a longer one goes beside it."""
LARGEST_BESIDE = 64 << 20
"""Bytes of one beside it at most."""
IN_MEMORY = "in_memory"
"""The only word of a message that is in the first of the descriptors beside it: its bytes."""
MOST_FDS = 16
"""Descriptors that one message carries at most."""
_PATH_BYTES = 100
"""A longer path does not fit into the address of a Unix socket."""


def agent_socket(directory: str, number: int = 0) -> str:
    """Return the path of a host agent's socket in its machine's part of the job's directory.

    ``number``: among the agents of that machine, where several names of it are separate hosts.
    """
    return f"{directory}/host_agent-{number}.sock"


def listen_at(path: str, *, backlog: int) -> socket.socket:
    """Return a socket that listens at a path, in place of what was there, and that only our user may use."""

    def prepare(sock: socket.socket, address: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - no pathlib here, see rank_agent.py
        sock.bind(address)
        os.chmod(path, 0o600)  # noqa: PTH101
        sock.listen(backlog)
        sock.setblocking(False)

    return _prepared(path, prepare)


def connected_to(path: str, *, seconds: float) -> socket.socket:
    """Return a connection to whoever listens at a path; OSError where nobody of our user does.

    ``seconds``: for the connection, and for each message.
    """

    def prepare(sock: socket.socket, address: str) -> None:
        sock.settimeout(seconds)
        sock.connect(address)
        _check_peer(sock)

    return _prepared(path, prepare)


def _prepared(path: str, prepare: Callable[[socket.socket, str], None]) -> socket.socket:
    """Return a socket that was given the address of a path: a long one goes through its directory."""
    sock, directory, address = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET), -1, path
    try:
        if len(os.fsencode(path)) > _PATH_BYTES:
            place, _, name = path.rpartition("/")
            directory = os.open(place or "/", os.O_RDONLY | os.O_DIRECTORY)
            address = f"/proc/self/fd/{directory}/{name}"
        prepare(sock, address)
    except BaseException:
        sock.close()
        raise
    finally:
        if directory >= 0:
            os.close(directory)
    return sock


def accepted(listener: socket.socket) -> Iterator[socket.socket]:
    """Yield the connections that wait at a listening socket, without blocking; other users' are closed."""
    while True:
        try:
            # What `socket.accept` builds on; `light_imports` has the C half alone.
            fd, _address = listener._accept()  # type: ignore[attr-defined]
        except OSError:
            return
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fd)
        try:
            _check_peer(sock)
            sock.setblocking(False)
        except OSError:
            sock.close()
            continue
        yield sock


def _check_peer(sock: socket.socket) -> None:
    """Raise OSError where the process at the other end is another user's."""
    _pid, uid, _gid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid != os.getuid():
        raise PermissionError(f"the process at the other end of the socket belongs to user {uid}")


def send(sock: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one message; OSError as the socket raises it (BlockingIOError: there is no room now)."""
    data, memory = json.dumps(message).encode(), -1
    try:
        if len(data) > LARGEST:
            memory = os.memfd_create("ringleader-message", os.MFD_CLOEXEC)
            if os.pwrite(memory, data, 0) != len(data):
                raise OSError(errno.ENOSPC, "no memory for a long message")
            data, fds = json.dumps({IN_MEMORY: len(data)}).encode(), (memory, *fds)
        beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds).tobytes())] if fds else []
        sock.sendmsg([data], beside, socket.MSG_NOSIGNAL)
    finally:
        if memory >= 0:
            os.close(memory)


def receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next message and the descriptors that came with it, None at the end of the connection.

    OSError as the socket raises it; ValueError for what is not one of our messages.
    """
    room = socket.CMSG_SPACE(MOST_FDS * array("i").itemsize)
    try:
        data, beside, flags, _address = sock.recvmsg(LARGEST, room, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return None
    fds = array("i")
    for level, kind, content in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    if not data:
        return None
    try:
        message = json.loads(data.decode())
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) or not isinstance(message, dict):
            raise ValueError("a message that is cut off, or not an object")
        if list(message) == [IN_MEMORY] and fds:
            nbytes, memory = message[IN_MEMORY], fds.pop(0)
            try:
                message = json.loads(os.pread(memory, min(nbytes, LARGEST_BESIDE), 0).decode())
            finally:
                os.close(memory)
            if not isinstance(message, dict):
                raise ValueError("a message that is not an object")
    except (ValueError, TypeError, RecursionError) as error:
        for fd in fds:
            os.close(fd)
        raise ValueError(f"no message of ours: {error}") from error
    return message, list(fds)
