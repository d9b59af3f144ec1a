"""From what was noted to events of a Chrome trace. Pure.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU, "JSON Array Format":
events in brackets, of which the last may be missing. Every named operation has a *lane* (a thread in the
format's words) on which its phases lie in each other:

    NEGOTIATE_ALLREDUCE            ALLREDUCE
       WAIT_FOR_RANKS                 WINDOW_REDUCE

A phase that begins and ends between two calls of `Lanes.events` becomes one complete event (``X``); one
that is still going on is opened with ``B``, so that the file of a job that hangs shows where, and closed with
``E``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from ringleader.collectives.kernels import ITEMSIZE
from ringleader.collectives.operations import Call

WAITING = "WAIT_FOR_RANKS"
CYCLE = "CYCLE_START"
MOST_LANES = 1000
"""So many names have a lane of their own; later ones share lanes, so that a script that makes up a new name
in every step does not make the file, and this process, larger and larger."""
_QUANTUM = 125
"""Nanoseconds. Times are multiples of it: an eighth of a microsecond is exact in binary, so that phases lie
in each other also after a reader has added a begin and a duration."""


class Turn(IntEnum):
    """What was noted."""

    SUBMITTED = 0
    NEGOTIATING = 1
    READY = 2
    EXECUTING = 3
    FINISHED = 4
    CYCLE = 5
    BEGIN = 6
    END = 7


Note = tuple[int, Turn, str, Call | None, str | None, int, str]
"""One turn of one operation: a plain tuple costs least to make. It keeps no array alive.

time        nanoseconds since the trace's zero
turn        what happened
group       which engine, empty for the one of all ranks
call        the operation's call, None where it is about no operation
name        name that the script gave it, or of a phase for `Turn.BEGIN` and `Turn.END`
serial      stands for the name where there is none
text        activity for `Turn.EXECUTING`, error for `Turn.FINISHED`
"""


@dataclass(slots=True)
class _Phase:
    name: str
    begin: int
    arguments: str = ""
    opened: bool = False
    """Whether a ``B`` was written for it."""


@dataclass(slots=True)
class _Lane:
    where: str
    """Process and thread, as every event of it says them."""
    shared: bool
    """Whether it goes to another operation when this one is done."""
    phases: list[_Phase] = field(default_factory=list)
    """What is going on, the outermost first."""


class _Key(NamedTuple):
    """What tells operations that are under way at the same time from each other."""

    group: str
    kind: str
    name: str | None
    serial: int


_WHOLE = (Turn.SUBMITTED, Turn.NEGOTIATING, Turn.EXECUTING, Turn.FINISHED)


class Lanes:
    """The lanes of one process."""

    def __init__(self, pid: int, process: str) -> None:
        """Describe the process: its number in the trace and its name."""
        self._pid = pid
        self._process = process
        self._count = 0
        self._named: dict[_Key, _Lane] = {}
        self._at_work: dict[_Key, _Lane] = {}
        self._free: dict[tuple[str, str], list[_Lane]] = {}
        self._described: dict[int, tuple[Call, str]] = {}
        """By identity, as the hash of a call costs more than the description."""
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
        at = 0
        while at < len(notes):
            if self._undisturbed(notes[at : at + 4]):
                at += 4
                continue
            time, turn, group, call, name, serial, text = notes[at]
            at += 1
            if turn is Turn.CYCLE:
                self._events.append(
                    f'{{"name":"{CYCLE}","ph":"i","s":"p","pid":{self._pid},"tid":0,"ts":{_micros(time)}}}'
                )
            elif call is None:
                self._mark(time, turn, json.dumps(name or "")[1:-1])
            else:
                key = _Key(group, call.kind, name, serial if name is None else 0)
                lane = self._at_work.get(key) or self._occupy(key)
                self._turn(lane, time, turn, call, key, text)

    def _undisturbed(self, notes: Sequence[Note]) -> bool:
        """Take an operation that nothing came between, if these notes are one; return whether they were.

        It has the same events as note by note, at a third of the cost, and most operations are such.
        """
        if tuple(note[1] for note in notes) != _WHOLE:
            return False
        first, second, third, fourth = notes
        _, _, group, call, name, serial, _ = first
        same = first[2:6] == second[2:6] == third[2:6] == fourth[2:6]
        if call is None or not same or fourth[6]:
            return False
        key = _Key(group, call.kind, name, serial if name is None else 0)
        if key in self._at_work:
            return False
        lane = self._occupy(key)
        self._release(lane, key)
        asked, there, met, end = (note[0] // _QUANTUM / 8 for note in notes)
        phase, word = f'"ph":"X",{lane.where},"ts":', _word(call)
        self._events.append(
            f'{{"name":"{WAITING}",{phase}{there!r},"dur":{met - there!r}}},\n'
            f'{{"name":"NEGOTIATE_{word}",{phase}{asked!r},"dur":{met - asked!r}}},\n'
            f'{{"name":"{third[6]}",{phase}{met!r},"dur":{end - met!r}}},\n'
            f'{{"name":"{word}",{phase}{met!r},"dur":{end - met!r},'
            f'"args":{{{self._arguments(key, call)}}}}}'
        )
        return True

    def events(self) -> list[str]:
        """Return the events of the notes taken since the last time, JSON objects, one or more in a text."""
        for lane in (*self._at_work.values(), self._training):
            self._open(lane)
        events, self._events = self._events, []
        return events

    # operations

    def _turn(self, lane: _Lane, time: int, turn: Turn, call: Call, key: _Key, text: str) -> None:
        if turn is Turn.FINISHED:
            self._close_all(lane, time, text)
            self._release(lane, key)
            return
        kind = _word(call)
        if turn is Turn.SUBMITTED or turn is Turn.NEGOTIATING:
            if not lane.phases:
                lane.phases.append(_Phase(f"NEGOTIATE_{kind}", time))
            if turn is Turn.NEGOTIATING and len(lane.phases) == 1:
                lane.phases.append(_Phase(WAITING, time))
            return
        if not lane.phases or lane.phases[0].name != kind:
            self._close_all(lane, time)
            lane.phases.append(_Phase(kind, time, self._arguments(key, call)))
        if turn is Turn.EXECUTING:
            if len(lane.phases) > 1:
                self._close(lane, time)
            lane.phases.append(_Phase(text, time))

    def _arguments(self, key: _Key, call: Call) -> str:
        known = self._described.get(id(call))
        if known is None or known[0] is not call:
            if len(self._described) >= MOST_LANES:
                self._described.clear()
            known = self._described[id(call)] = (call, _described(call))
        name = f"noname.{key.serial}" if key.name is None else json.dumps(key.name)[1:-1]
        return f'"tensor":"{key.kind}.{name}",{known[1]}'

    def _occupy(self, key: _Key) -> _Lane:
        """Give an operation the lane of its name, or one that it shares with others in turns."""
        lane = self._named.get(key)
        if lane is None and key.name is not None and len(self._named) < MOST_LANES:
            lane = self._named[key] = self._new(key.group, f"{key.kind}.{key.name}", shared=False)
        if lane is None:
            free = self._free.get((key.group, key.kind))
            lane = free.pop() if free else self._new(key.group, key.kind, shared=True)
        self._at_work[key] = lane
        return lane

    def _release(self, lane: _Lane, key: _Key) -> None:
        del self._at_work[key]
        if lane.shared:
            self._free.setdefault((key.group, key.kind), []).append(lane)

    def _new(self, group: str, name: str, *, shared: bool) -> _Lane:
        self._count += 1
        self._events.append(self._about("thread_name", self._count, f"{group}: {name}" if group else name))
        return _Lane(where=f'"pid":{self._pid},"tid":{self._count}', shared=shared)

    # phases that are no operation's

    def _mark(self, time: int, turn: Turn, name: str) -> None:
        """Begin or end a phase of the script. What began in it and did not end, ends with it."""
        lane = self._training
        if any(phase.name == name for phase in lane.phases):
            while lane.phases[-1].name != name:
                self._close(lane, time)
            self._close(lane, time)
        if turn is Turn.BEGIN:
            lane.phases.append(_Phase(name, time))

    # events

    def _open(self, lane: _Lane) -> None:
        for phase in lane.phases:
            if not phase.opened:
                phase.opened = True
                self._write(lane, phase.name, "B", phase.begin, phase.arguments)

    def _close_all(self, lane: _Lane, time: int, error: str = "") -> None:
        while lane.phases:
            self._close(lane, time, error if len(lane.phases) == 1 else "")

    def _close(self, lane: _Lane, time: int, error: str = "") -> None:
        phase = lane.phases.pop()
        arguments = phase.arguments
        if error:
            said = f'"error":{json.dumps(error)}'
            arguments = f"{arguments},{said}" if arguments and not phase.opened else said
        if phase.opened:
            self._write(lane, phase.name, "E", time, arguments if error else "")
            return
        begin, took = phase.begin // _QUANTUM / 8, (time // _QUANTUM - phase.begin // _QUANTUM) / 8
        rest = f',"args":{{{arguments}}}' if arguments else ""
        self._events.append(
            f'{{"name":"{phase.name}","ph":"X",{lane.where},"ts":{begin!r},"dur":{took!r}{rest}}}'
        )

    def _write(self, lane: _Lane, name: str, sort: str, time: int, arguments: str) -> None:
        rest = f',"args":{{{arguments}}}' if arguments else ""
        self._events.append(f'{{"name":"{name}","ph":"{sort}",{lane.where},"ts":{_micros(time)}{rest}}}')

    def _about(self, what: str, tid: int, name: str) -> str:
        return (
            f'{{"name":"{what}","ph":"M","pid":{self._pid},"tid":{tid},"args":{{"name":{json.dumps(name)}}}}}'
        )


def _word(call: Call) -> str:
    """Return the kind of operation in Horovod's words: gradients are reduced."""
    return "ALLREDUCE" if call.kind == "gradients" else call.kind.upper()


def _described(call: Call) -> str:
    nbytes = math.prod(call.shape) * ITEMSIZE.get(call.dtype, 1)
    return f'"dtype":"{call.dtype}","shape":{list(call.shape)},"bytes":{nbytes},"op":"{call.op.name.lower()}"'


def _micros(time: int) -> float:
    """Return nanoseconds as microseconds, rounded down to the quantum; exact up to 35 years."""
    return time // _QUANTUM / 8
