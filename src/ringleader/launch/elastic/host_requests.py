"""A running elastic job is asked for a look at its hosts, by its user, on the launcher's machine.

The Unix socket lies in the job's directory, which only the user may enter; both sides ask the kernel who the
other one is. One JSON object a message (``ranks/unix_messages``): ``describe`` and ``refresh`` are answered.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Sequence
from typing import Any

from ringleader.job import Host
from ringleader.launch.elastic.host_answers import HostsChanged, Looked
from ringleader.launch.elastic.host_offers import HostOffers
from ringleader.ranks import unix_messages

SOCKET_NAME = "launcher.sock"
"""The launcher's socket, in its host's part of the job's directory."""
MOST_CONNECTIONS = 16
"""Whoever comes beyond is turned away."""


class HostRequests:
    """The launcher's side."""

    def __init__(
        self, selector: selectors.BaseSelector, path: str, offers: HostOffers, about: dict[str, Any]
    ) -> None:
        """Listen. Whoever waits with ``selector`` calls the data of a key with its descriptor.

        ``about``: the answer to ``describe``. Raises OSError.
        """
        self._selector, self._path, self._offers, self._about = selector, path, offers, about
        self._clients: dict[int, socket.socket] = {}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        address = unix_messages.SocketAddress(path)
        try:
            self._listener.bind(address.address)
        finally:
            address.close()
        os.chmod(path, 0o600)  # noqa: PTH101
        self._listener.listen(MOST_CONNECTIONS)
        self._listener.setblocking(False)
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _accept(self, fd: int) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        try:
            unix_messages.check_peer(client)
        except OSError:
            client.close()
            return
        if len(self._clients) >= MOST_CONNECTIONS:
            client.close()
            return
        client.setblocking(False)
        self._clients[client.fileno()] = client
        self._selector.register(client, selectors.EVENT_READ, self._read)

    def _read(self, fd: int) -> None:
        client = self._clients.get(fd)
        if client is None:
            return
        try:
            received = unix_messages.receive(client)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            received = None
        if received is None:
            self._drop(client)
            return
        words, descriptors = received
        for one in descriptors:  # nobody sends us any
            os.close(one)
        if words.get("do") == "describe":
            self._say(client, self._about)
        elif words.get("do") == "refresh":
            before = self._offers.hosts
            self._offers.refresh(lambda looked: self._say(client, answer_of(self._offers, before, looked)))
        else:
            self._drop(client)

    def _say(self, client: socket.socket, words: dict[str, Any]) -> None:
        try:
            if client.fileno() >= 0:  # it may have gone meanwhile
                unix_messages.send(client, words)
        except OSError:
            self._drop(client)

    def _drop(self, client: socket.socket) -> None:
        if self._clients.pop(client.fileno(), None) is not None:
            self._selector.unregister(client)
            client.close()

    def close(self) -> None:
        """Listen no more: whoever waits for an answer sees the end."""
        for client in list(self._clients.values()):
            self._drop(client)
        self._selector.unregister(self._listener)
        self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)  # noqa: PTH108


def answer_of(offers: HostOffers, before: Sequence[Host], looked: Looked) -> dict[str, Any]:
    """Return what is said of a look, as JSON values. ``before``: the hosts when it was asked for."""
    return {
        "source": offers.source,
        "hosts": [[host.name, host.slots or 0] for host in looked.hosts],
        "change": str(HostsChanged(before=tuple(before), hosts=looked.hosts)),
        "excluded": list(offers.excluded),
        "trouble": looked.trouble,
    }
