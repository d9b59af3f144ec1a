"""From what `timeline` noted to events of a Chrome trace. Pure.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU, "JSON Array Format":
events in brackets, of which the last may be missing. Every named operation has a *track* (a thread in the
format's words) on which its phases are nested:

    NEGOTIATE_ALLREDUCE            ALLREDUCE
       WAIT_FOR_RANKS                 WINDOW_REDUCE

A phase that begins and ends between two calls of `ChromeTrace.events` becomes one complete event (``X``); one
that is still running is opened with ``B``, so that the file of a job that hangs shows where, and closed with
``E``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from ringleader.engine.operations import Signature
from ringleader.engine.reduction_kernels import ITEMSIZE

WAITING = "WAIT_FOR_RANKS"
CYCLE = "CYCLE_START"
MOST_TRACKS = 1000
"""This many names have their own track; later ones share tracks, so that a script that makes up a new name
in every step does not make the file, and this process, larger and larger."""
_QUANTUM = 125
"""Nanoseconds. Times are multiples of it: an eighth of a microsecond is exact in binary, so that phases lie
in each other also after a reader has added a begin and a duration."""


class Stage(IntEnum):
    """What is noted. An operation's stages come in this order; any but the last may be left out."""

    SUBMITTED = 0
    """The script asked for the operation."""
    NEGOTIATING = 1
    """This rank is at the barrier with it; now it waits for the slowest rank."""
    EXECUTING = 2
    """All ranks are there and agree. What is being done is an activity: see `timeline.activity_of`."""
    FINISHED = 3
    """It is done, or ended with ``work.error``."""
    CYCLE = 4
    """A round of all ranks begins."""
    BEGIN = 5
    """Something begins that is not an operation, such as ``BACKWARD``."""
    END = 6
    """It ended."""


Note = tuple[int, Stage, str, Signature | None, str | None, int, str]
"""One stage of one operation: a plain tuple costs least to make. It keeps no array alive.

time        nanoseconds since the trace's zero
stage       what happened
group       which engine, empty for the one of all ranks
signature   the operation's, None where it is about no operation
name        name that the script gave it, or of a phase for `Stage.BEGIN` and `Stage.END`
serial      stands for the name where there is none
text        activity for `Stage.EXECUTING`, error for `Stage.FINISHED`
"""


@dataclass(slots=True)
class _Phase:
    name: str
    begin: int
    arguments: str = ""
    opened: bool = False
    """Whether a ``B`` was written for it."""


@dataclass(slots=True)
class _Track:
    where: str
    """Process and thread, as every event of it says them."""
    shared: bool
    """Whether it goes to another operation when this one is done."""
    phases: list[_Phase] = field(default_factory=list)
    """What is in progress, the outermost first."""


_Key = tuple[str, str, str | None, int]
"""What tells operations that are under way at the same time from each other: group, kind, name, serial."""


class ChromeTrace:
    """The tracks of one process."""

    def __init__(self, pid: int, process: str) -> None:
        """Describe the process: its number in the trace and its name."""
        self._pid = pid
        self._process = process
        self._count = 0
        self._named: dict[_Key, _Track] = {}
        self._at_work: dict[_Key, _Track] = {}
        self._free: dict[tuple[str, str], list[_Track]] = {}
        self._described: dict[int, tuple[Signature, str]] = {}
        """By identity, as the hash of a signature costs more than the description."""
        self._events: list[str] = []
        self._training = self._new("", "training", shared=False)

    def head(self, epoch_micros: int) -> list[str]:
        """Return the events a trace begins with. ``epoch_micros`` is what the trace's zero is since 1970."""
        clock = f'"args":{{"start_time_since_epoch_in_micros":{epoch_micros}}}'
        return [
            self._about("process_name", 0, self._process),
            f'{{"name":"process_sort_index","ph":"M","pid":{self._pid},"args":{{"sort_index":{self._pid}}}}}',
            f'{{"name":"clock","ph":"M","pid":{self._pid},{clock}}}',
        ]

    def take(self, notes: Sequence[Note]) -> None:
        """Take the next notes, in the order in which they were made."""
        for time, stage, group, signature, name, serial, text in notes:
            if stage is Stage.CYCLE:
                self._event(CYCLE, "i", f'"s":"p","pid":{self._pid},"tid":0', time)
            elif signature is None:
                self._mark(time, stage, json.dumps(name or "")[1:-1])
            else:
                key = (group, signature.kind, name, serial if name is None else 0)
                track = self._at_work.get(key) or self._occupy_track(key)
                if stage is not Stage.FINISHED:
                    self._enter_stage(track, time, stage, signature, key, text)
                    continue
                self._close_all(track, time, text)
                del self._at_work[key]
                if track.shared:
                    self._free.setdefault(key[:2], []).append(track)

    def events(self) -> list[str]:
        """Return the events of the notes taken since the last time, JSON objects."""
        for track in (*self._at_work.values(), self._training):
            for phase in track.phases:
                if not phase.opened:
                    phase.opened = True
                    self._event(phase.name, "B", track.where, phase.begin, arguments=phase.arguments)
        events, self._events = self._events, []
        return events

    # operations

    def _enter_stage(
        self, track: _Track, time: int, stage: Stage, signature: Signature, key: _Key, text: str
    ) -> None:
        kind = _word(signature)
        if stage is Stage.SUBMITTED or stage is Stage.NEGOTIATING:
            if not track.phases:
                track.phases.append(_Phase(f"NEGOTIATE_{kind}", time))
            if stage is Stage.NEGOTIATING and len(track.phases) == 1:
                track.phases.append(_Phase(WAITING, time))
            return
        if not track.phases or track.phases[0].name != kind:
            self._close_all(track, time)
            track.phases.append(_Phase(kind, time, self._arguments(key, signature)))
        if len(track.phases) > 1:
            self._close(track, time)
        track.phases.append(_Phase(text, time))

    def _arguments(self, key: _Key, signature: Signature) -> str:
        known = self._described.get(id(signature))
        if known is None or known[0] is not signature:
            if len(self._described) >= MOST_TRACKS:
                self._described.clear()
            known = self._described[id(signature)] = (signature, _described(signature))
        _, kind, name, serial = key
        shown = f"noname.{serial}" if name is None else json.dumps(name)[1:-1]
        return f'"tensor":"{kind}.{shown}",{known[1]}'

    def _occupy_track(self, key: _Key) -> _Track:
        """Give an operation the track of its name, or one that it shares with others in turns."""
        group, kind, name, _ = key
        track = self._named.get(key)
        if track is None and name is not None and len(self._named) < MOST_TRACKS:
            track = self._named[key] = self._new(group, f"{kind}.{name}", shared=False)
        if track is None:
            free = self._free.get((group, kind))
            track = free.pop() if free else self._new(group, kind, shared=True)
        self._at_work[key] = track
        return track

    def _new(self, group: str, name: str, *, shared: bool) -> _Track:
        self._count += 1
        self._events.append(self._about("thread_name", self._count, f"{group}: {name}" if group else name))
        return _Track(where=f'"pid":{self._pid},"tid":{self._count}', shared=shared)

    # phases that are no operation's

    def _mark(self, time: int, stage: Stage, name: str) -> None:
        """Begin or end a phase of the script. What began in it and did not end, ends with it."""
        track = self._training
        if any(phase.name == name for phase in track.phases):
            while track.phases[-1].name != name:
                self._close(track, time)
            self._close(track, time)
        if stage is Stage.BEGIN:
            track.phases.append(_Phase(name, time))

    # events

    def _close_all(self, track: _Track, time: int, error: str = "") -> None:
        while track.phases:
            self._close(track, time, error if len(track.phases) == 1 else "")

    def _close(self, track: _Track, time: int, error: str = "") -> None:
        phase = track.phases.pop()
        arguments = phase.arguments
        if error:
            said = f'"error":{json.dumps(error)}'
            arguments = f"{arguments},{said}" if arguments and not phase.opened else said
        if phase.opened:
            self._event(phase.name, "E", track.where, time, arguments=arguments if error else "")
        else:
            self._event(phase.name, "X", track.where, phase.begin, time, arguments)

    def _event(
        self, name: str, sort: str, where: str, time: int, end: int | None = None, arguments: str = ""
    ) -> None:
        """Write one event. Times are microseconds, rounded down to the quantum; exact up to 35 years."""
        began = time // _QUANTUM
        took = "" if end is None else f',"dur":{(end // _QUANTUM - began) / 8}'
        rest = f',"args":{{{arguments}}}' if arguments else ""
        self._events.append(f'{{"name":"{name}","ph":"{sort}",{where},"ts":{began / 8}{took}{rest}}}')

    def _about(self, what: str, tid: int, name: str) -> str:
        return (
            f'{{"name":"{what}","ph":"M","pid":{self._pid},"tid":{tid},"args":{{"name":{json.dumps(name)}}}}}'
        )


def _word(signature: Signature) -> str:
    """Return the kind of operation in Horovod's words: gradients are reduced."""
    return "ALLREDUCE" if signature.kind == "gradients" else signature.kind.upper()


def _described(signature: Signature) -> str:
    nbytes = math.prod(signature.shape) * ITEMSIZE.get(signature.dtype, 1)
    op = signature.op.name.lower()
    return f'"dtype":"{signature.dtype}","shape":{list(signature.shape)},"bytes":{nbytes},"op":"{op}"'
