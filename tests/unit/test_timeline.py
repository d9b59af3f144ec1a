"""The timeline: phases are nested, the file reads as a trace at every moment."""

import json
import os
from collections import defaultdict
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.engine.operations import ReduceOp, Signature, Work, signature_digest
from ringleader.engine.timeline import (
    Observer,
    Stage,
    TimelineOptions,
    Timelines,
    TraceFile,
    activity_of,
    file_of,
    read_timeline_options,
)
from ringleader.engine.timeline_events import MOST_TRACKS, ChromeTrace

CALL = Signature(kind="allreduce", dtype="float32", shape=(4, 2), op=ReduceOp.AVERAGE)


def work(name: str) -> Work:
    signature = Signature(kind="allreduce", dtype="float32", shape=(4, 2))
    return Work(signature, signature_digest(signature), name=name, serial=0, array=None, out=None)


def spans_of(events: list[dict[str, Any]]) -> dict[int, list[tuple[str, float, float]]]:
    """Return name, begin and end per lane; asserts what readers of the format rely on.

    On one lane any two spans are nested or disjoint; a ``B`` is closed by the ``E`` of its name.
    """
    trace: dict[int, list[tuple[str, float, float]]] = defaultdict(list)
    stacks: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for event in events:
        assert {"name", "ph", "pid"} <= event.keys() and event["ph"] in "XBEMi"
        tid = event.get("tid", 0)
        if event["ph"] == "X":
            trace[tid].append((event["name"], event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "B":
            stacks[tid].append((event["name"], event["ts"]))
        elif event["ph"] == "E":
            name, begin = stacks[tid].pop()
            assert name == event["name"]
            trace[tid].append((name, begin, event["ts"]))
    for tid, stack in stacks.items():
        trace[tid].extend((name, begin, float("inf")) for name, begin in stack)
    for spans in trace.values():
        assert all(begin <= end for _, begin, end in spans)
        for (_, begin, end), (_, other_begin, other_end) in combinations(spans, 2):
            apart = end <= other_begin or other_end <= begin
            inside = begin <= other_begin and other_end <= end
            around = other_begin <= begin and end <= other_end
            assert apart or inside or around
    return trace


class Engine:
    observer: Observer | None = None


def timelines(path: Path, *, marks: bool = False) -> tuple[Timelines, Engine]:
    made = Timelines(TimelineOptions(path=str(path), dynamic=True, mark_cycles=marks), rank=0)
    engine = Engine()
    made.attach(engine)
    return made, engine


def one_operation(observer: Observer | None, name: str, error: str = "") -> None:
    assert observer is not None
    one = work(name)
    observer.note(Stage.SUBMITTED, one)
    observer.mark(Stage.CYCLE)
    observer.note(Stage.NEGOTIATING, one)
    observer.note(Stage.EXECUTING, one, "WINDOW_REDUCE")
    observer.note(Stage.FINISHED, one, error)


@pytest.mark.parametrize("marks", [True, False])
def test_phases_have_horovods_names_and_lie_in_each_other(tmp_path: Path, marks: bool) -> None:
    made, engine = timelines(tmp_path / "t.json", marks=marks)
    assert engine.observer is None
    made.begin()
    assert made.observer is not None
    one_operation(engine.observer, "test", 'Mismatched "shapes"')
    made.stop()
    assert (engine.observer, made.observer) == (None, None)
    events = json.loads((tmp_path / "t.json").read_text())
    names = {event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name"}
    spans = {name: (begin, end) for name, begin, end in spans_of(events)[names["allreduce.test"]]}
    assert spans.keys() == {"NEGOTIATE_ALLREDUCE", "WAIT_FOR_RANKS", "ALLREDUCE", "WINDOW_REDUCE"}
    assert spans["NEGOTIATE_ALLREDUCE"][1] == spans["ALLREDUCE"][0]
    assert spans["ALLREDUCE"][1] == spans["WINDOW_REDUCE"][1]
    cycles = [event["ph"] for event in events if event["name"] == "CYCLE_START"]
    assert cycles == (["i"] if marks else [])
    assert any("start_time_since_epoch_in_micros" in event.get("args", {}) for event in events)
    (found,) = [event["args"] for event in events if event["name"] == "ALLREDUCE"]
    assert found.pop("error") == 'Mismatched "shapes"'
    known = {"tensor": "allreduce.test", "dtype": "float32", "shape": [4, 2], "bytes": 32, "op": "sum"}
    assert found == known


def test_what_is_going_on_is_in_the_file_and_the_cut_off_file_reads(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    made, engine = timelines(path)
    made.begin()
    engine.observer.note(Stage.SUBMITTED, work("late"))
    for _ in range(200):
        if "NEGOTIATE_ALLREDUCE" in path.read_text():
            break
        made._trace._ending.wait(0.01)  # type: ignore[union-attr]
    cut = json.loads(path.read_text() + "]")
    engine.observer.note(Stage.FINISHED, work("late"))
    made.stop()
    whole = json.loads(path.read_text())
    for events, phases in ((cut, ["B"]), (whole, ["B", "E"])):
        assert [event["ph"] for event in events if event["name"] == "NEGOTIATE_ALLREDUCE"] == phases
    spans_of(whole)


def test_a_second_start_ends_the_first_file_and_a_same_name_begins_anew(tmp_path: Path) -> None:
    made, engine = timelines(tmp_path / "one.json")
    made.begin()
    one_operation(engine.observer, "first")
    for name in ("second", "third"):
        made.start(str(tmp_path / "two.json"), mark_cycles=False)
        one_operation(engine.observer, name)
    made.stop()
    one, two = (json.dumps(json.loads((tmp_path / f"{name}.json").read_text())) for name in ("one", "two"))
    assert "first" in one and "third" in two and "second" not in two


def test_what_the_environment_asks_for_and_who_writes() -> None:
    asked = {"HOROVOD_TIMELINE": "t"}
    for environ, options in (
        ({}, TimelineOptions()),
        ({"HOROVOD_TIMELINE": "dynamic"}, TimelineOptions(dynamic=True)),
        (asked | {"RINGLEADER_TIMELINE": "u"}, TimelineOptions(path="u", dynamic=True)),
        (asked | {"HOROVOD_TIMELINE_MARK_CYCLES": "0"}, TimelineOptions(path="t", dynamic=True)),
        (
            asked | {"HOROVOD_TIMELINE_MARK_CYCLES": "1"},
            TimelineOptions(path="t", dynamic=True, mark_cycles=True),
        ),
    ):
        assert read_timeline_options(environ) == options
    assert [file_of("t.json", rank) for rank in (0, 1)] == ["t.json", None]
    assert file_of("t.{rank}.json", 3) == "t.3.json"
    for transport, kind, activity in (
        ("window", "gradients", "WINDOW_REDUCE"),
        ("hosts", "broadcast", "MPI_BCAST"),
        ("mpi", "gradients", "MPI_ALLREDUCE"),
        ("loopback", "allreduce", "COPY"),
    ):
        assert activity_of(transport, kind) == activity


def test_a_file_that_cannot_be_written_is_said_and_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "no" / "t.json"
    made, engine = timelines(path)
    made.begin()
    assert engine.observer is None and str(path) in capsys.readouterr().err
    with pytest.raises(FileNotFoundError):
        made.start(str(path), mark_cycles=False)
    made.stop()


def test_a_write_that_fails_ends_the_file_and_not_the_training(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    said: list[str] = []
    trace = TraceFile(str(tmp_path / "pipe"), pid=0, process="p", mark_cycles=False, tell=said.append)
    os.close(reader)
    trace.notes.append((0, Stage.SUBMITTED, "", CALL, "late", 0, ""))
    trace.close()
    assert "ends early" in said[0]


def test_unnamed_operations_share_lanes_and_so_do_names_beyond_the_most() -> None:
    trace = ChromeTrace(0, "p")
    names = [*[None] * 50, *(f"loss.{at}" for at in range(MOST_TRACKS + 50))]
    for serial, name in enumerate(names):
        for stage in (Stage.SUBMITTED, Stage.NEGOTIATING, Stage.EXECUTING, Stage.FINISHED):
            trace.take([(serial, stage, "", CALL, name, serial, "")])
    made = json.loads("[" + ",".join(trace.events()) + "]")
    assert len([event for event in made if event["name"] == "thread_name"]) == 1 + 1 + MOST_TRACKS


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10_000),
            st.sampled_from(list(Stage)),
            st.sampled_from(["", "set 1"]),
            st.sampled_from([None, "a", 'b"\\\n', "STEP", "BACKWARD"]),
            st.integers(0, 2),
            st.sampled_from(["", "WINDOW_REDUCE", "MPI_ALLREDUCE"]),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_any_order_of_turns_gives_a_trace_that_reads(
    drawn: list[tuple[int, Stage, str, str | None, int, str, bool]],
) -> None:
    trace = ChromeTrace(3, "p")
    events = trace.head(0)
    time = 0
    for later, stage, group, name, serial, text, cut in drawn:
        time += later
        about = None if stage in (Stage.CYCLE, Stage.BEGIN, Stage.END) else CALL
        trace.take([(time, stage, group, about, name, serial, text or "X")])
        if cut:
            events += trace.events()
    events += trace.events()
    spans_of(json.loads("[" + ",".join(events) + "]"))
