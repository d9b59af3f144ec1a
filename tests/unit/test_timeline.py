"""The timeline: phases are nested, the file reads as a trace at every moment."""

import json
import os
from collections import defaultdict
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


def work(name: str | None, serial: int = 0, kind: str = "allreduce") -> Work:
    signature = Signature(kind=kind, dtype="float32", shape=(4, 2))
    return Work(signature, signature_digest(signature), name=name, serial=serial, array=None, out=None)


def spans_of(events: list[dict[str, Any]]) -> dict[int, list[tuple[str, float, float]]]:
    """Return name, begin and end per lane; asserts what readers of the format rely on.

    On one lane any two spans are nested or disjoint; a ``B`` is closed by the ``E`` of its name.
    """
    trace: dict[int, list[tuple[str, float, float]]] = defaultdict(list)
    stacks: dict[int, list[tuple[str, float]]] = defaultdict(list)
    for event in events:
        assert {"name", "ph", "pid"} <= event.keys()
        tid = event.get("tid", 0)
        if event["ph"] == "X":
            assert event["dur"] >= 0
            trace[tid].append((event["name"], event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "B":
            stacks[tid].append((event["name"], event["ts"]))
        elif event["ph"] == "E":
            name, begin = stacks[tid].pop()
            assert name == event["name"]
            trace[tid].append((name, begin, event["ts"]))
        else:
            assert event["ph"] in ("M", "i")
    for tid, stack in stacks.items():
        trace[tid].extend((name, begin, float("inf")) for name, begin in stack)
    for spans in trace.values():
        for at, (_, begin, end) in enumerate(spans):
            assert begin <= end
            for _, other_begin, other_end in spans[:at]:
                apart = end <= other_begin or other_end <= begin
                inside = (begin <= other_begin and other_end <= end) or (
                    other_begin <= begin and end <= other_end
                )
                assert apart or inside
    return trace


def read(path: Path) -> list[dict[str, Any]]:
    """Read a trace that may still be written: the closing bracket is optional."""
    text = path.read_text()
    return json.loads(text if text.endswith("\n]\n") else text + "]")


class Engine:
    observer: Observer | None = None


def timelines(path: Path, *, rank: int = 0, marks: bool = False) -> tuple[Timelines, Engine]:
    made = Timelines(TimelineOptions(path=str(path), dynamic=True, mark_cycles=marks), rank=rank)
    engine = Engine()
    made.attach(engine)
    return made, engine


def one_operation(observer: Observer | None, name: str | None, serial: int = 0) -> None:
    assert observer is not None
    one = work(name, serial)
    observer.note(Stage.SUBMITTED, one)
    observer.mark(Stage.CYCLE)
    observer.note(Stage.NEGOTIATING, one)
    observer.note(Stage.EXECUTING, one, "WINDOW_REDUCE")
    observer.note(Stage.FINISHED, one)


def test_phases_have_horovods_names_and_lie_in_each_other(tmp_path: Path) -> None:
    made, engine = timelines(tmp_path / "t.json", marks=True)
    made.begin()
    one_operation(engine.observer, "test")
    made.stop()
    events = json.loads((tmp_path / "t.json").read_text())
    names = {event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name"}
    spans = spans_of(events)[names["allreduce.test"]]
    assert {name for name, *_ in spans} == {
        "NEGOTIATE_ALLREDUCE",
        "WAIT_FOR_RANKS",
        "ALLREDUCE",
        "WINDOW_REDUCE",
    }
    begins = {name: (begin, end) for name, begin, end in spans}
    assert begins["NEGOTIATE_ALLREDUCE"][1] == begins["ALLREDUCE"][0]
    assert begins["ALLREDUCE"][1] == begins["WINDOW_REDUCE"][1]
    assert [event["ph"] for event in events if event["name"] == "CYCLE_START"] == ["i"]
    assert any("start_time_since_epoch_in_micros" in event.get("args", {}) for event in events)
    (found,) = [event for event in events if event["name"] == "ALLREDUCE"]
    assert found["args"] == {
        "tensor": "allreduce.test",
        "dtype": "float32",
        "shape": [4, 2],
        "bytes": 32,
        "op": "sum",
    }


def test_no_cycles_unless_asked_for(tmp_path: Path) -> None:
    made, engine = timelines(tmp_path / "t.json")
    made.begin()
    one_operation(engine.observer, "test")
    made.stop()
    assert "CYCLE_START" not in (tmp_path / "t.json").read_text()


def test_what_is_going_on_is_in_the_file_and_the_cut_off_file_reads(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    made, engine = timelines(path)
    made.begin()
    engine.observer.note(Stage.SUBMITTED, work("late"))
    for _ in range(200):
        if "NEGOTIATE_ALLREDUCE" in path.read_text():
            break
        made._trace._ending.wait(0.01)  # type: ignore[union-attr]
    cut = read(path)
    assert [event["ph"] for event in cut if event["name"] == "NEGOTIATE_ALLREDUCE"] == ["B"]
    engine.observer.note(Stage.FINISHED, work("late"))
    made.stop()
    whole = json.loads(path.read_text())
    assert [event["ph"] for event in whole if event["name"] == "NEGOTIATE_ALLREDUCE"] == ["B", "E"]
    spans_of(whole)


def test_an_error_is_told_at_the_operation(tmp_path: Path) -> None:
    made, engine = timelines(tmp_path / "t.json")
    made.begin()
    assert engine.observer is not None
    wrong = work("wrong")
    engine.observer.note(Stage.SUBMITTED, wrong)
    engine.observer.note(Stage.FINISHED, wrong, 'Mismatched "shapes"')
    made.stop()
    events = json.loads((tmp_path / "t.json").read_text())
    (found,) = [event for event in events if event["name"] == "NEGOTIATE_ALLREDUCE"]
    assert found["args"]["error"] == 'Mismatched "shapes"'


def test_nothing_is_watched_before_the_start_and_after_the_end(tmp_path: Path) -> None:
    made, engine = timelines(tmp_path / "t.json")
    assert engine.observer is None
    made.begin()
    watched = (engine.observer, made.observer)
    assert None not in watched
    made.stop()
    assert (engine.observer, made.observer) == (None, None)


def test_a_second_start_ends_the_first_file_and_a_same_name_begins_anew(tmp_path: Path) -> None:
    made, engine = timelines(tmp_path / "one.json")
    made.begin()
    one_operation(engine.observer, "first")
    made.start(str(tmp_path / "two.json"), mark_cycles=False)
    one_operation(engine.observer, "second")
    made.start(str(tmp_path / "two.json"), mark_cycles=False)
    one_operation(engine.observer, "third")
    made.stop()
    assert "first" in json.dumps(json.loads((tmp_path / "one.json").read_text()))
    second = json.dumps(json.loads((tmp_path / "two.json").read_text()))
    assert "third" in second
    assert "second" not in second


@pytest.mark.parametrize(
    ("path", "rank", "expected"),
    [("t.json", 0, "t.json"), ("t.json", 1, None), ("t.{rank}.json", 3, "t.3.json")],
)
def test_who_writes(path: str, rank: int, expected: str | None) -> None:
    assert file_of(path, rank) == expected


@pytest.mark.parametrize(
    ("environ", "options"),
    [
        ({}, TimelineOptions()),
        ({"HOROVOD_TIMELINE": "t"}, TimelineOptions(path="t", dynamic=True)),
        ({"HOROVOD_TIMELINE": "DYNAMIC"}, TimelineOptions(dynamic=True)),
        ({"HOROVOD_TIMELINE": "dynamic"}, TimelineOptions(dynamic=True)),
        ({"HOROVOD_TIMELINE": "t", "RINGLEADER_TIMELINE": "u"}, TimelineOptions(path="u", dynamic=True)),
        (
            {"HOROVOD_TIMELINE": "t", "HOROVOD_TIMELINE_MARK_CYCLES": "1"},
            TimelineOptions(path="t", dynamic=True, mark_cycles=True),
        ),
        (
            {"HOROVOD_TIMELINE": "t", "HOROVOD_TIMELINE_MARK_CYCLES": "0"},
            TimelineOptions(path="t", dynamic=True),
        ),
    ],
)
def test_what_the_environment_asks_for(environ: dict[str, str], options: TimelineOptions) -> None:
    assert read_timeline_options(environ) == options


def test_a_file_that_cannot_be_written_is_said_and_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, engine = timelines(tmp_path / "no" / "t.json")
    made.begin()
    assert engine.observer is None
    assert str(tmp_path / "no" / "t.json") in capsys.readouterr().err
    with pytest.raises(FileNotFoundError):
        made.start(str(tmp_path / "no" / "t.json"), mark_cycles=False)
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
    whole = (Stage.SUBMITTED, Stage.NEGOTIATING, Stage.EXECUTING, Stage.FINISHED)
    for serial in range(50):
        trace.take([(serial, stage, "", CALL, None, serial, "") for stage in whole])
        trace.take([(serial, Stage.SUBMITTED, "", CALL, None, serial, "")])
        trace.take([(serial, Stage.FINISHED, "", CALL, None, serial, "")])
    for at in range(MOST_TRACKS + 50):
        trace.take([(100 + at, Stage.SUBMITTED, "", CALL, f"loss.{at}", at, "")])
        trace.take([(100 + at, Stage.FINISHED, "", CALL, f"loss.{at}", at, "")])
    made = json.loads("[" + ",".join(trace.events()) + "]")
    assert len([event for event in made if event["name"] == "thread_name"]) == 1 + 1 + MOST_TRACKS


def test_marks_lie_in_each_other() -> None:
    trace = ChromeTrace(0, "p")
    marks = [(1, Stage.BEGIN, "STEP"), (2, Stage.BEGIN, "BACKWARD"), (3, Stage.END, "BACKWARD")]
    marks += [
        (4, Stage.BEGIN, "STEP"),
        (5, Stage.BEGIN, "BACKWARD"),
        (6, Stage.END, "STEP"),
        (7, Stage.END, "STEP"),
    ]
    trace.take([(time * 1000, stage, "", None, name, 0, "") for time, stage, name in marks])
    spans = spans_of([json.loads(event) for event in trace.events()])
    assert sorted(spans[1]) == [
        ("BACKWARD", 2.0, 3.0),
        ("BACKWARD", 5.0, 6.0),
        ("STEP", 1.0, 4.0),
        ("STEP", 4.0, 6.0),
    ]


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


@pytest.mark.parametrize(
    ("transport", "kind", "activity"),
    [
        ("window", "allreduce", "WINDOW_REDUCE"),
        ("window", "gradients", "WINDOW_REDUCE"),
        ("hosts", "broadcast", "MPI_BCAST"),
        ("mpi", "gradients", "MPI_ALLREDUCE"),
        ("mpi", "alltoall", "MPI_ALLTOALL"),
        ("loopback", "allreduce", "COPY"),
    ],
)
def test_activities(transport: str, kind: str, activity: str) -> None:
    assert activity_of(transport, kind) == activity
