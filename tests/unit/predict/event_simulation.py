"""All-reduces message by message, for few ranks: what closed formulas are compared with.

A port sends one message at a time and receives one at a time, both at once. A message of b bytes occupies
its sender and its receiver for b/B seconds and has arrived after another α. Messages that wait for a port are
sent in the order in which they became possible, and of those the one with the smallest number first.
"""

import heapq
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple


class Message(NamedTuple):
    """One message; it can be sent when all that it ``needs`` (positions in the list) have arrived."""

    sender: int
    receiver: int
    size: float
    needs: tuple[int, ...] = ()


def duration(messages: Sequence[Message], *, bandwidth: float, latency: float) -> float:
    """Return when the last message has arrived."""
    missing = [len(message.needs) for message in messages]
    followers: dict[int, list[int]] = defaultdict(list)
    for number, message in enumerate(messages):
        for need in message.needs:
            followers[need].append(number)
    waiting = [(0.0, number) for number, count in enumerate(missing) if count == 0]
    sends_from: dict[int, float] = defaultdict(float)
    receives_from: dict[int, float] = defaultdict(float)
    possible, last = [0.0] * len(messages), 0.0
    while waiting:
        time, number = heapq.heappop(waiting)
        message = messages[number]
        start = max(time, sends_from[message.sender], receives_from[message.receiver])
        if start > time:  # a port is taken: look again when it is free
            heapq.heappush(waiting, (start, number))
            continue
        free = start + message.size / bandwidth
        sends_from[message.sender] = receives_from[message.receiver] = free
        last = max(last, free + latency)
        for follower in followers[number]:
            possible[follower] = max(possible[follower], free + latency)
            missing[follower] -= 1
            if missing[follower] == 0:
                heapq.heappush(waiting, (possible[follower], follower))
    return last


def ring(count: int, size: float) -> list[Message]:
    """2(n−1) steps; in each, every rank sends S/n to its neighbor, once it has the one before."""
    found: list[Message] = []
    for step in range(2 * (count - 1)):
        for rank in range(count):
            needs = ((step - 1) * count + (rank - 1) % count,) if step else ()
            found.append(Message(rank, (rank + 1) % count, size / count, needs))
    return found


def pairwise(count: int, size: float) -> list[Message]:
    """Every rank sends each other one its part of the values, S/n; then each sends its result to all others.

    Rank r begins with rank r+1, so that no rank receives from all at once: servers beside all workers.
    """
    return servers(count, count, size, apart=False)


def tree(count: int, size: float, pieces: int) -> list[Message]:
    """Two binary trees, each with half of the bytes in ``pieces``: up to its root, and down again.

    A rank that has children in one tree has none in the other (Sanders, Speck, Träff 2009).
    """
    found: list[Message] = []
    parents = in_order_parents(count)
    for _ in range(pieces):
        for ranks in (range(count), range(count - 1, -1, -1)):
            up_and_down(found, parents, ranks, size / 2 / pieces)
    return found


def up_and_down(
    found: list[Message], parents: Sequence[int | None], ranks: Sequence[int], size: float
) -> None:
    """Append a piece's messages: the sum to the root of a tree, then the result to its leaves."""
    children: dict[int | None, list[int]] = defaultdict(list)
    for node, parent in enumerate(parents):
        children[parent].append(node)

    def send(node: int, other: int, needs: tuple[int, ...]) -> int:
        found.append(Message(ranks[node], ranks[other], size, needs))
        return len(found) - 1

    def climb(node: int) -> tuple[int, ...]:
        return tuple(send(child, node, climb(child)) for child in children[node])

    def descend(node: int, needs: tuple[int, ...]) -> None:
        for child in children[node]:
            descend(child, (send(node, child, needs),))

    (root,) = children[None]
    descend(root, climb(root))


def in_order_parents(count: int) -> list[int | None]:
    """Return each node's parent in a binary tree whose in-order is 0, 1, …: odd nodes are inner ones."""
    parents: list[int | None] = [None] * count

    def place(low: int, high: int, parent: int | None) -> None:
        if low < high:
            middle = low + (1 << ((high - low).bit_length() - 1)) - 1
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
    pushed: dict[int, tuple[int, ...]] = defaultdict(tuple)
    first, later = (workers, 0) if apart else (0, 1)
    for turn in range(count):
        for worker in range(workers):
            server = (worker + turn + later) % count
            if apart or server != worker:
                pushed[server] += (len(found),)
                found.append(Message(worker, first + server, size / count))
    for turn in range(workers):
        for server in range(count):
            worker = (server + turn + later) % workers
            if apart or server != worker:
                found.append(Message(first + server, worker, size / count, pushed[server]))
    return found
