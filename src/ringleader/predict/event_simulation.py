"""All-reduces message by message, for few ranks: what guards the closed formulas. Pure.

A port sends one message at a time and receives one at a time, both at once. A message of b bytes occupies
its sender and its receiver for b/B seconds and has arrived after another α. Messages that wait for a port are
sent in the order in which they became possible, and of those the one with the smallest number first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message; it can be sent when all that it ``needs`` have arrived."""

    sender: int
    receiver: int
    size: float
    needs: tuple[int, ...] = ()
    """Positions of other messages in the list."""


def duration(messages: Sequence[Message], *, bandwidth: float, latency: float) -> float:
    """Return when the last message has arrived."""
    missing = [len(message.needs) for message in messages]
    followers: list[list[int]] = [[] for _ in messages]
    for number, message in enumerate(messages):
        for need in message.needs:
            followers[need].append(number)
    waiting: list[tuple[float, int]] = [(0.0, number) for number, count in enumerate(missing) if count == 0]
    heapq.heapify(waiting)
    sends_from: dict[int, float] = {}
    receives_from: dict[int, float] = {}
    possible = [0.0] * len(messages)
    last = 0.0
    while waiting:
        time, number = heapq.heappop(waiting)
        message = messages[number]
        start = max(time, sends_from.get(message.sender, 0.0), receives_from.get(message.receiver, 0.0))
        if start > time:  # a port is taken: look again when it is free
            heapq.heappush(waiting, (start, number))
            continue
        free = start + message.size / bandwidth
        sends_from[message.sender] = receives_from[message.receiver] = free
        arrived = free + latency
        last = max(last, arrived)
        for follower in followers[number]:
            possible[follower] = max(possible[follower], arrived)
            missing[follower] -= 1
            if missing[follower] == 0:
                heapq.heappush(waiting, (possible[follower], follower))
    return last


def ring(count: int, size: float) -> list[Message]:
    """2(n−1) steps; in each, every rank sends S/n to its neighbour, once it has the one before."""
    found = []
    for step in range(2 * (count - 1)):
        for rank in range(count):
            needs = () if step == 0 else ((step - 1) * count + (rank - 1) % count,)
            found.append(Message(sender=rank, receiver=(rank + 1) % count, size=size / count, needs=needs))
    return found


def pairwise(count: int, size: float) -> list[Message]:
    """Every rank sends each other one its part of the values, S/n; then each sends its result to all others.

    Rank r begins with rank r+1, so that no rank receives from all at once.
    """
    found: list[Message] = []
    values: dict[int, list[int]] = {rank: [] for rank in range(count)}
    for away in range(1, count):
        for rank in range(count):
            values[(rank + away) % count].append(len(found))
            found.append(Message(sender=rank, receiver=(rank + away) % count, size=size / count))
    for away in range(1, count):
        for rank in range(count):
            receiver, needs = (rank + away) % count, tuple(values[rank])
            found.append(Message(sender=rank, receiver=receiver, size=size / count, needs=needs))
    return found


def tree(count: int, size: float, pieces: int) -> list[Message]:
    """Two binary trees, each with half of the bytes in ``pieces``: up to its root, and down again.

    A rank that has children in one tree has none in the other (Sanders, Speck, Träff 2009).
    """
    found: list[Message] = []
    for _ in range(pieces):
        for mirrored in (False, True):
            _one_piece(found, count, size / 2 / pieces, mirrored)
    return found


def _one_piece(found: list[Message], count: int, size: float, mirrored: bool) -> None:
    """Append a piece's messages: the sum to the root, then the result to the leaves."""

    def rank(node: int) -> int:
        return count - 1 - node if mirrored else node

    parents = in_order_parents(count)
    children: dict[int, list[int]] = {node: [] for node in range(count)}
    for node, parent in enumerate(parents):
        if parent is not None:
            children[parent].append(node)
    up: dict[int, int] = {}

    def climb(node: int) -> None:
        for child in children[node]:
            climb(child)
        parent = parents[node]
        if parent is not None:
            needs = tuple(up[child] for child in children[node])
            up[node] = len(found)
            found.append(Message(sender=rank(node), receiver=rank(parent), size=size, needs=needs))

    def descend(node: int, needs: tuple[int, ...]) -> None:
        for child in children[node]:
            number = len(found)
            found.append(Message(sender=rank(node), receiver=rank(child), size=size, needs=needs))
            descend(child, (number,))

    root = parents.index(None)
    climb(root)
    descend(root, tuple(up[child] for child in children[root]))


def in_order_parents(count: int) -> list[int | None]:
    """Return each node's parent in a binary tree whose in-order is 0, 1, …: odd nodes are inner ones."""
    parents: list[int | None] = [None] * count

    def place(low: int, high: int, parent: int | None) -> None:
        if low >= high:
            return
        half = 1
        while 2 * half <= high - low:
            half *= 2
        middle = low + half - 1
        parents[middle] = parent
        place(low, middle, middle)
        place(middle + 1, high, middle)

    place(0, count, None)
    return parents


def servers(workers: int, count: int, size: float, *, apart: bool) -> list[Message]:
    """Every worker pushes S/p to each of p servers; when all are there, the server answers each worker.

    Worker w starts with server w, w+1, …, so that no server is asked by all at once. ``apart``: servers have
    ports of their own; else server s is beside worker s, and what it has of that worker needs no message.
    """
    found: list[Message] = []
    pushed: dict[int, list[int]] = {server: [] for server in range(count)}
    first = workers if apart else 0
    for turn in range(count):
        for worker in range(workers):
            server = (worker + turn + (0 if apart else 1)) % count
            if apart or server != worker:
                pushed[server].append(len(found))
                found.append(Message(sender=worker, receiver=first + server, size=size / count))
    for turn in range(workers):
        for server in range(count):
            worker = (server + turn + (0 if apart else 1)) % workers
            if apart or server != worker:
                needs = tuple(pushed[server])
                message = Message(sender=first + server, receiver=worker, size=size / count, needs=needs)
                found.append(message)
    return found
