"""How a rank learns that a peer has ended.

There are three sources: a flag in the shared memory of the host, a message from a rank of another host, and
the file in which Ringleader's launcher notes every end. Under a plain ``mpirun`` the first two do.
"""

from __future__ import annotations

import json
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

from ringleader.engine.communicator import ANY, Call, Communicator

NAP_SECONDS = 0.001


class End(IntEnum):
    """How a rank ended."""

    FINISHED = 1
    RAISED = 2
    SHUT_DOWN = 3
    BROKEN = 4
    """It lives, but an operation of one of its engines ended with an error, so that this engine does nothing
    any more."""


_IN_WORDS = {
    End.FINISHED: "has ended",
    End.RAISED: "ended with an error",
    End.SHUT_DOWN: "was shut down (hvd.shutdown)",
    End.BROKEN: "gave up in an operation (see its own error)",
}


class PeerEnd(NamedTuple):
    """What is known of a rank that takes part no more."""

    end: End
    exit_code: int | None = None
    """Of its process, where the launcher told it."""

    def __str__(self) -> str:
        code = "" if self.exit_code is None else f" with exit code {self.exit_code}"
        return _IN_WORDS[self.end] + code


LivenessSource = Callable[[], Mapping[int, PeerEnd]]
"""Returns the ranks that have ended so far, and how."""


class StatusFile:
    """The launcher's file: one JSON object per line, such as ``{"ended": [[0, 3], [7, 7]], "exit_code": 0}``.

    Ranks are pairs of first and last; a single rank may stand as a number.
    """

    def __init__(self, path: Path) -> None:
        """Remember the file; it need not exist yet."""
        self._path = path
        self._read = 0
        self._ended: dict[int, PeerEnd] = {}

    def __call__(self) -> dict[int, PeerEnd]:
        """Return every rank that the file says has ended."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._read)
                text = file.read()
        except OSError:
            return self._ended
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            self._note(line)
        return self._ended

    def _note(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            ended, code = message.get("ended"), message.get("exit_code")
            pairs = [(ended, ended)] if isinstance(ended, int) else [(first, last) for first, last in ended]
            ranks = [rank for first, last in pairs for rank in range(first, last + 1)]
        except (ValueError, TypeError, AttributeError):
            return
        self._ended.update(dict.fromkeys(ranks, PeerEnd(End.FINISHED, code)))


class EndMessages:
    """Messages between hosts: a rank that ends while others go on tells them."""

    TAG = 77

    def __init__(self, control: Communicator) -> None:
        """Use a communicator of its own, so that no other message can be taken for one of these."""
        self._control = control
        self._ended: dict[int, PeerEnd] = {}
        self._broken: dict[int, dict[int, PeerEnd]] = {}
        self._sent: list[Any] = []
        self._looking = threading.Lock()

    def __call__(self) -> dict[int, PeerEnd]:
        """Return every rank that has said so far that it ends."""
        self._listen()
        return dict(self._ended)

    def broken(self, number: int) -> dict[int, PeerEnd]:
        """Return every rank that has said so far that its engine of a process set is broken."""
        self._listen()
        return dict(self._broken.get(number, {}))

    def _listen(self) -> None:
        # Two threads that saw the same message would wait for it both, and one of them for ever.
        if self._looking.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._looking.release()

    def _look(self) -> None:
        while (found := self._control.probe(ANY, self.TAG)) is not None:
            (source, _), word = found, array("i", [0, 0])
            self._control.receive(word, source, self.TAG)
            how, number = End(word[0]), word[1]
            told = self._broken.setdefault(number, {}) if how is End.BROKEN else self._ended
            told[source] = PeerEnd(how)

    def send(self, how: End, ranks: Sequence[int], *, number: int = 0) -> None:
        """Tell ``ranks``; does not wait for them. ``number`` is that of a process set, for `End.BROKEN`."""
        word = array("i", [int(how), number])
        begin = self._control.begin
        self._sent.extend((word, begin(Call.SEND, source=word, peer=rank, tag=self.TAG)) for rank in ranks)

    def drain(self, seconds: float) -> None:
        """Move what was said on its way, at most so long."""
        end = time.monotonic() + seconds
        while not self.sent() and time.monotonic() < end:
            time.sleep(NAP_SECONDS)

    def sent(self) -> bool:
        """Return whether every message has left; asking also moves them on."""
        self._sent = [(word, request) for word, request in self._sent if not request.Test()]
        return not self._sent
