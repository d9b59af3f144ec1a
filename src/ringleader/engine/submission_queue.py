"""The queue of operations that a rank has asked for and not got yet.

An operation is submitted under a name that no other one has which is pending here. Whoever waits for one
carries out rounds on the queue (see `group_engine`): there is no other thread to hand over to on the way.
Only where operations are pending and the script does something else does the progress thread continue with
them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.timeline import Stage

if TYPE_CHECKING:
    from ringleader.engine.framework_adapter import DeviceTransport
    from ringleader.engine.operations import Work
    from ringleader.engine.timeline import Observer

GRACE_SECONDS = 0.0005
"""A script that has just asked for something is about to ask for more, or to wait; the progress thread leaves
it this long to do so."""
LONGEST_GRACE_SECONDS = 0.005
"""What has been pending for this long the progress thread does, whatever the script does."""
OUT_OF_THE_WAY_SECONDS = 0.005
"""How often the progress thread looks while the script itself is waiting for operations."""


def still_pending(work: Work) -> ValueError:
    """Return the error of an operation whose name another one has."""
    return ValueError(
        f"Requested to {work.signature.kind} '{work.name}' while an operation of that name is "
        "still pending on this rank. Wait for it, or give this one another name."
    )


class SubmissionQueue:
    """What one rank asked of one engine."""

    def __init__(
        self,
        run_round: Callable[[bool], None],
        *,
        devices: DeviceTransport | None,
        clock: Callable[[], float],
        threads: bool,
    ) -> None:
        """Begin empty.

        ``run_round`` synchronizes with the other ranks once and does what all have asked for, while the lock
        is held; it is given whether the script stands still meanwhile. ``threads``: whether a second thread
        may run it.
        """
        self.works: dict[str, Work] = {}
        """By name. Also touched without the lock, by operations of a dict that are one step."""
        self.lock = threading.Lock()
        """Held by the thread that runs a round, or carries out an operation at once."""
        self.broken = ""
        """Why nothing can be done any more, empty as long as it can."""
        self.observer: Observer | None = None
        """Notes what operations go through, where a timeline is written."""
        self.devices = devices
        """Carries arrays that are not in host memory."""
        self.waiting_threads: list[int] = []
        """Numbers of the threads of the script that wait for operations."""
        self._run_round, self._clock, self._threads = run_round, clock, threads
        self._helpers = 0
        self._newest = 0.0
        self._stopping = False
        self._begin_without_thread()

    def _begin_without_thread(self) -> None:
        """Have a progress thread started when it is first needed."""
        self._thread: threading.Thread | None = None
        self._wakeup = threading.Event()
        self._awake = not self._threads
        """Whether the thread knows that there is something to do, or there is to be none."""

    def submit(self, work: Work) -> None:
        """Ask for an operation and do not wait. A name that is still pending here is a `ValueError`."""
        self._add((work,))
        if not self._awake:
            self._wake()

    def submit_again(self, work: Work) -> None:
        """Ask once more for an operation on the host that was done without an error; see `submit`."""
        if self.observer is not None or self.broken or work.name in self.works:
            self.submit(work)
            return
        # Without what others need: many small ones may follow each other.
        work.done = False
        work.since = self._newest = self._clock()
        self.works[work.name] = work
        if not self._awake:
            self._wake()

    def submit_all(self, works: Sequence[Work]) -> None:
        """Ask for several at once: the ranks see all of them or none. Errors as for `submit`, before any."""
        self._add(works)
        if not self._awake:
            self._wake()

    def _add(self, works: Sequence[Work]) -> None:
        if self.broken:
            raise HorovodInternalError(self.broken)
        now = self._newest = self._clock()
        for work in works:
            if work.name in self.works:
                raise still_pending(work)
            work.error, work.done, work.since = None, False, now
            if work.signature.device != "cpu":
                self.devices_for(work).submitted(work)
            if self.observer is not None:
                self.observer.note(Stage.SUBMITTED, work)
        if len(works) == 1:
            self.works[works[0].name] = works[0]
        else:
            self.works.update([(work.name, work) for work in works])

    def devices_for(self, work: Work) -> DeviceTransport:
        """Return what carries arrays on devices; `HorovodInternalError` where nothing does."""
        if self.devices is None:
            raise HorovodInternalError(f"{work}: arrays on {work.signature.device} cannot be carried here")
        return self.devices

    def run(self, work: Work) -> None:
        """Ask for an operation and wait until it is done; raises what went wrong with it."""
        self._add((work,))
        self.wait(work)

    def wait(self, work: Work) -> None:
        """Run rounds until this operation is done; raises what went wrong with it."""
        if not work.done:
            thread = threading.get_ident()
            self.waiting_threads.append(thread)
            try:
                while not work.done:
                    with self.lock:
                        if not work.done and self.works.get(work.name) is not work:
                            raise HorovodInternalError(f"{work} was not asked for")
                        if not work.done:
                            self._run_round(True)
            finally:
                self.waiting_threads.remove(thread)
        if work.error is not None:
            raise work.error
        if work.signature.device != "cpu":
            self.devices_for(work).delivered(work)

    def advance(self, work: Work, *, blocked: bool) -> None:
        """Run one round unless this operation is done, for a thread that others submit through.

        Such a thread does not stand still while it waits: more may be asked for between two rounds.
        ``blocked`` says that nothing more will be. Raises what ends the engine; `Work.error` says what went
        wrong with the operation.
        """
        self._helpers += 1
        try:
            with self.lock:
                if not work.done and self.works.get(work.name) is work:
                    self._run_round(blocked)
        finally:
            self._helpers -= 1

    def finish(self, work: Work, error: Exception | None) -> None:
        """Mark a work as done, or ended with an error."""
        if self.works.get(work.name) is work:
            del self.works[work.name]
        work.error = error
        if self.observer is not None:
            self.observer.note(Stage.FINISHED, work, "" if error is None else str(error))
        work.done = True

    def break_off(self, why: str) -> None:
        """End everything that is pending with an error, and whatever is asked for from now on."""
        self.broken = why
        for work in list(self.works.values()):
            self.finish(work, HorovodInternalError(why))

    def forked(self, why: str) -> None:
        """Continue in a forked child, where only the thread that forked is left.

        Where ``why`` is not empty it is the error of every operation from now on.
        """
        self.lock = threading.Lock()
        self._begin_without_thread()
        self.waiting_threads.clear()
        self._helpers = 0
        if why:
            self.broken = why

    # the progress thread, which continues with what is pending while the script does something else

    def _wake(self) -> None:
        self._awake = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="ringleader-progress", daemon=True)
            self._thread.start()
        self._wakeup.set()

    def _serve(self) -> None:
        while not self._stopping:
            self._wakeup.wait()
            self._wakeup.clear()
            nap = GRACE_SECONDS
            while nap and not self._stopping:
                time.sleep(nap)
                nap = self._work_in_background()
                if not nap:
                    # What was submitted before this line woke nobody, so it is looked for once more.
                    self._awake = False
                    nap = self._work_in_background()
                    self._awake = nap > 0

    def _work_in_background(self) -> float:
        """Run one round if something is pending and nobody else is at it; return when to come again."""
        pending = list(self.works.values())
        if not pending:
            return 0.0
        if self.waiting_threads or self._helpers:
            return OUT_OF_THE_WAY_SECONDS
        now = self._clock()
        quiet = now - self._newest >= GRACE_SECONDS or now - pending[0].since >= LONGEST_GRACE_SECONDS
        if quiet and self.lock.acquire(blocking=False):
            try:
                self._run_round(False)
            except Exception:
                return 0.0  # whoever waits for one of these operations gets it
            finally:
                self.lock.release()
        return GRACE_SECONDS if self.works else 0.0

    def stop(self, timeout: float) -> bool:
        """End the progress thread after the work that it is at; return whether it ended in time."""
        self._stopping = True
        self._wakeup.set()
        if self._thread is not None:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True
