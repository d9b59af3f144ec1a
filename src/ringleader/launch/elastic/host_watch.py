"""Asks a source of hosts again and again, in a thread of its own; the launcher's loop hears what follows.

A source may wait (a script, a file system, an API server): the launcher's loop must not. The thread hands
over values through a queue; a descriptor tells the loop when there is something in it.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections import deque

from ringleader.errors import RefusedError
from ringleader.job import Host
from ringleader.launch.elastic.host_answers import HostAnswers, HostNews, no_answer, usable
from ringleader.launch.elastic.host_sources import HostSource

CONFIRM_SECONDS = 1.0
"""Between an answer that is another one and the look that confirms it."""
_CLOSE_SECONDS = 10.0


class HostWatch:
    """A source that is watched from the first answer to ``close``."""

    def __init__(self, source: HostSource, hosts: tuple[Host, ...], *, period: float | None = None) -> None:
        """``hosts``: what ``source.look()`` said first. ``period``: seconds instead of the source's own."""
        self._source = source
        self._answers = HostAnswers(source.name, hosts)
        self._period = source.period if period is None else period
        self._queue: deque[HostNews] = deque()
        self._told, self._tell = os.pipe()
        self._stop, self._stop_here = os.pipe()
        self._refresh, self._refresh_here = os.pipe()
        for fd in (self._told, self._tell, self._refresh, self._refresh_here):
            os.set_blocking(fd, False)
        self._thread = threading.Thread(target=self._run, name=f"hosts of {source.name}", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """Return the descriptor that is readable while there is news."""
        return self._told

    def news(self) -> tuple[HostNews, ...]:
        """Return what came up since the last call, in order; never waits."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._told, 4096)
        found: list[HostNews] = []
        while self._queue:
            found.append(self._queue.popleft())
        return tuple(found)

    def refresh(self) -> None:
        """Probe the source now, not only when the period is over."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._refresh_here, b"r")

    def close(self) -> None:
        """End the thread and what it runs; a second time nothing happens."""
        if self._stop_here < 0:
            return
        os.close(self._stop_here)
        self._stop_here = -1
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            return  # a file system that does not answer: its descriptors are left to it, it ends with us
        self._source.close()
        for fd in (self._told, self._tell, self._stop, self._refresh, self._refresh_here):
            os.close(fd)

    # --- in the thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        with contextlib.suppress(KeyboardInterrupt):  # raised by ``look`` where ``close`` ends it
            while self._pause():
                self._put(self._look())

    def _pause(self) -> bool:
        """Wait until the next look is due; False: the end."""
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        poll.register(self._refresh, select.POLLIN)
        seconds = min(self._period, CONFIRM_SECONDS) if self._answers.in_doubt else self._period
        for fd, _ in poll.poll(seconds * 1000):
            if fd == self._stop:
                return False
            os.read(self._refresh, 4096)
        return True

    def _look(self) -> tuple[HostNews, ...]:
        try:
            return self._answers.take(usable(self._source.look(self._stop), self._source.name))
        except RefusedError as error:
            return self._answers.take_failure(error)
        except Exception as error:  # a thread that ends in silence would leave the job without news for good
            what = f"could not be asked: {type(error).__name__}: {error}"
            return self._answers.take_failure(no_answer(self._source.name, what))

    def _put(self, news: tuple[HostNews, ...]) -> None:
        if news:
            self._queue.extend(news)
            with contextlib.suppress(BlockingIOError):
                os.write(self._tell, b"n")
