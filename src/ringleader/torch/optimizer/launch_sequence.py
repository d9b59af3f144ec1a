"""The exchange of gradients on devices without a meeting for each bucket.

Once in a step the ranks agree that all of them launch the same buckets, in the order of the plan (an
operation of the kind ``launch``, submitted with the first gradient of the step). When that is granted,
buckets go to their device straight from backward's hooks, each as soon as it is complete and those before it
in the plan are launched. What a rank has no gradient for goes at the latest with its `finish`, so a rank that
uses other parameters than the rest launches the same.

It is refused where a rank brings another plan, has something else to agree on, has joined, or has other work
on its devices; then nothing has been launched, and every bucket is agreed on by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from ringleader.adapters.submit_operation import work_and_request
from ringleader.engine.exceptions import HorovodInternalError, NoteMismatchError
from ringleader.engine.group_engine import Engine
from ringleader.engine.operations import Signature, Work


class LaunchSequence:
    """The buckets of one optimizer on devices."""

    def __init__(self, engine: Engine, works: Mapping[int, Work], *, name: str, note: str) -> None:
        """Take the exchange of each bucket by its number, in the order of the plan that ``note`` names."""
        self._engine = engine
        self._works = works
        self._order = list(works)
        device = next(iter(works.values())).signature.device
        signature = Signature(kind="launch", note=note, device=device)
        self._permission, self._request = work_and_request(signature, name, True)
        self._request.array = False
        self.begin()

    def __iter__(self) -> Iterator[int]:
        return iter(self._order)

    def __contains__(self, index: int) -> bool:
        return index in self._works

    def begin(self) -> None:
        """Expect the next step."""
        self._asked: Work | None = None
        self._ready: set[int] = set()
        self._launched = 0

    @property
    def asked(self) -> bool:
        """Return whether this step's agreement is under way, so that nothing more can be sent with it."""
        return self._asked is not None

    def ask(self, *, requesting: bool) -> None:
        """Have the ranks agree on this step, once; ``requesting``: this one has more to agree on."""
        if self._asked is None:
            self._asked = self._request if requesting else self._permission
            self._asked.out = None
            self._engine.submit(self._asked)

    def written(self, index: int) -> None:
        """Note that a gradient of the bucket is there."""
        self._engine.queue.devices_for(self._works[index]).written(self._works[index])

    def ready(self, index: int) -> list[int]:
        """Note that a bucket is complete. Returns those that the caller is to submit, as it was refused."""
        self._ready.add(index)
        if self._asked is None or not self._asked.done:
            return []
        if not self._granted:
            refused, self._ready = sorted(self._ready), set()
            return refused
        while self._launched < len(self._order) and self._order[self._launched] in self._ready:
            self._launch_next()
        return []

    def finish(self, load: Callable[[int], None]) -> bool:
        """Launch what is left, and have the script's stream wait; ``load`` lays out buckets still incomplete.

        Returns False where it was refused: then nothing has been launched.
        """
        assert self._asked is not None
        try:
            self._engine.wait(self._asked)
        except NoteMismatchError:
            return False
        if not self._granted:
            return False
        for index in self._order[self._launched :]:
            if index not in self._ready:
                load(index)
            self._launch_next()
        self._engine.end_sequence([self._works[index] for index in self._order])
        return True

    def abandon(self) -> None:
        """Launch what the other ranks wait for, in a step that is not finished here."""
        if self._asked is not None and self._asked.done and self._granted and not self._complete:
            with suppress(HorovodInternalError):
                self.finish(lambda _index: None)

    @property
    def _complete(self) -> bool:
        return self._launched == len(self._order)

    @property
    def _granted(self) -> bool:
        work = self._asked
        return work is not None and work.error is None and work.out is True

    def _launch_next(self) -> None:
        self._engine.launch(self._works[self._order[self._launched]])
        self._launched += 1
