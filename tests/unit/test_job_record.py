"""The record of a run: its lines, its bounds, and what is left of it where something goes wrong."""

import errno
import os
from pathlib import Path

import pytest
from tests.report.recorded import Story

from ringleader.bench.run_file import read_any
from ringleader.errors import RequestError
from ringleader.launch import job_record
from ringleader.launch.elastic_history import Event
from ringleader.launch.job_record import FILE, JobRecord, is_running


def test_steps_of_ranks_are_gathered_in_a_line_each_second(tmp_path: Path) -> None:
    story = Story(tmp_path).at(1.0)
    story.start()
    for tenth in range(1, 31):
        for rank in (0, 1):
            story.at(1.0 + tenth / 10).step(rank, 0.1, samples=8)
    run = story.end(5.0)
    # The first report is written at once: when the first step began is known by it.
    assert [one.at for one in run.steps] == [1.1, 2.1, 3.1, 4.0]
    assert [one.steps for one in run.steps] == [(1,), (10, 10), (10, 10), (9, 10)]
    assert sum(sum(one.samples) for one in run.steps) == 58 * 8, "without those of first steps"
    assert sum(sum(one.seconds) for one in run.steps) == pytest.approx(2 * 2.9), "a first step has no begin"
    assert sum(sum(one.times.values()) for one in run.steps) == 58 and not story.warnings


def test_reports_that_cannot_be_read_or_tell_nothing_new_make_no_line(tmp_path: Path) -> None:
    story, process = Story(tmp_path).at(1.0), object()
    story.start()
    wrong = ("many", float("nan"), 10**400, 2**53, -1)
    for message in (
        *({"kind": "steps", "steps": steps, "seconds": 1} for steps in wrong),
        {"kind": "progress", "steps": 1},
        {"kind": "own", "steps": 1, "step_seconds": None, "waiting_seconds": 1},
        {"kind": ["steps"]},
        {"steps": 1},
    ):
        story.record.report(object(), 0, message)
    for at, (count, number) in enumerate(((10**400, 10**400), (-3, 2**53), (2, 7)), 2):
        message = {"kind": "steps", "steps": at, "seconds": at, "times": {"0": count}, "step": number}
        story.at(float(at)).record.report(process, 0, message)
    story.at(6.0).record.report(process, 0, {"kind": "steps", "steps": 4, "seconds": 4})
    run = story.end(7.0)
    assert not run.faults and [one.at for one in run.steps] == [2.0, 3.0, 4.0]
    assert [(one.times, one.number) for one in run.steps] == [({}, 0), ({}, 0), ({0: 2}, 7)]


def test_a_process_that_takes_a_ranks_place_counts_anew(tmp_path: Path) -> None:
    story = Story(tmp_path).at(1.0)
    story.start()
    story.step(0, 0.5, steps=50)
    story.at(2.0).step(0, 0.5, steps=2)
    story.at(3.0).start()
    story.at(3.5).step(0, 0.5)
    run = story.end(4.0)
    assert [one.steps for one in run.steps] == [(50,), (2,), (1,)]
    assert [len(some) for _life, some in run.lives] == [2, 1]


def test_a_long_run_has_fewer_lines_and_loses_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_record, "PER_PACE", 2000)
    story = Story(tmp_path).at(0.0)
    story.start()
    for second in range(1, 400):
        story.at(float(second)).step(0, 1.0)
    run = story.end(400.0)
    assert len(run.steps) < 120 and sum(sum(one.steps) for one in run.steps) == 399
    assert run.goodput == (pytest.approx(399 / 400), pytest.approx(399 / 400)), "no step is taken for a pause"


def test_a_disk_that_fills_costs_lines_and_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(tmp_path).at(1.0)
    story.start()
    story.at(2.0).step(0, 1.0)
    real, room = os.write, [7, 0]

    def write(file: int, data: bytes) -> int:
        if left := room[0]:
            room.pop(0)
            return real(file, data[:left])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write)
        for second in (3.0, 4.0, 5.0):
            story.at(second).step(0, 1.0)
    story.at(6.0).step(0, 1.0)
    run = story.end(7.0)
    (warning,) = story.warnings
    assert "no room is left; the job continues" in warning and str(tmp_path / FILE) in warning
    assert [one.at for one in run.steps] == [2.0, 6.0] and run.faults == (), "a line is whole, or not there"


def test_a_record_that_a_killed_launcher_leaves_is_read(tmp_path: Path) -> None:
    story, path = Story(tmp_path).at(1.0), tmp_path / FILE
    story.start()
    for second in range(2, 8):
        story.at(float(second)).step(0, 1.0)
    assert is_running(path) and story.read().is_running
    story.record.close()
    path.write_text(path.read_text()[:-20])
    run = story.read()
    assert not is_running(path) and not run.is_running and run.ended is None and len(run.steps) == 5
    assert run.faults == ("line 8: it is cut: its writer was killed, or the disk was full",)
    path.unlink()
    os.mkfifo(path)
    assert not is_running(path)


WRONG = """\
{"steps":{"at":3,"ranks":[0],"steps":[-4]}}
[]
{
{"a":1,"b":2}
{"later":{}}
{"steps":{"at":1e400,"ranks":[0]}}
{"sample":{"at":3}}
{"event":{"at":3,"kind":7,"who":""}}
"""


def test_lines_that_are_wrong_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    story, path = Story(tmp_path).at(1.0), tmp_path / FILE
    story.start()
    story.at(2.0).step(0, 1.0)
    story.record.close()
    path.write_text(path.read_text() + WRONG)
    run = story.read()
    assert len(run.steps) == 1
    assert run.faults[0] == "line 4: steps.steps[0]: -4.0 is not a count"
    assert run.faults[1] == "line 5: it is not a line of a record"
    assert [text.split(":")[0] for text in run.faults] == [f"line {n}" for n in (4, 5, 6, 7, 9, 10, 11)]
    path.write_text(path.read_text() + "[]\n" * 50)
    assert story.read().faults[-1] == "37 more lines cannot be read"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"run":{"schema":9}}\n',
            "has schema 9; this version .* reads schema 1\n.*use the version",
        ),
        ('{"run":{"schema":1}}\n', "context: is missing"),
        ("\x00\x01\n", "has no schema number"),
        ("", "is empty"),
    ],
)
def test_a_record_that_is_none_of_ours_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(RequestError, match=said):
        read_any(tmp_path)


def test_a_directory_that_has_a_record_keeps_it(tmp_path: Path) -> None:
    Story(tmp_path / "new" / "one").record.close()
    with pytest.raises(RequestError, match="already exists"):
        JobRecord(str(tmp_path / "new" / "one"), warn=print)


def test_counters_that_cannot_be_are_said_and_the_rest_goes_into_the_record(tmp_path: Path) -> None:
    story = Story(tmp_path).at(1.0)
    story.start()
    story.sample("h1", interfaces={"eth0": [1, 2]}, gpus={"0": {"utilization": 0.5}})
    story.at(2.0).sample("h1", interfaces={"eth0": [1, 2]}, gpus={"0": {"utilization": 7}})
    for at, counters in ((3.0, "many"), (3.1, [5, 6]), (4.0, [7, 8])):
        story.at(at).sample("h1", interfaces={"eth0": counters})
    run = story.end(5.0)
    assert [(one.at, one.fault) for one in run.samples] == [
        (1.0, ""),
        (2.0, "gpus.0.utilization: 7.0 is not from 0 to 1"),
        (3.0, "interfaces.eth0: 'many' is not a list"),
        (4.0, ""),
    ], "one a second"
    assert run.samples[0].gpus["0"].utilization == 0.5


def test_processes_that_ended_are_forgotten(tmp_path: Path) -> None:
    story, lives, left = Story(tmp_path), [object(), object()], object()

    def report(*processes: object) -> None:
        for process in processes:
            story.record.report(process, 0, {"kind": "steps", "steps": 1, "seconds": 1})

    story.record.started(story.hosts)
    report(*lives, left)
    story.start(generation=2, fresh=False)
    assert not story.record._processes
    report(left, lives[0])
    event = Event(at=0.0, kind="generation", who="", generation=3)
    story.record.started(story.hosts, event, lives)
    assert list(story.record._processes) == lives[:1]


def test_faults_of_a_host_wait_for_its_next_sample(tmp_path: Path) -> None:
    story = Story(tmp_path)
    for second in range(40):
        story.at(second / 4).sample("h1", fault=f"GPUs: {second % 2}")
    story.at(10.0).sample("h1")
    story.at(10.2).sample("h1", fault="GPUs: gone")
    for second in (10.4, 11.0, 12.0):
        story.at(second).sample("h1")
    samples = story.end(21.0).samples
    assert len(samples) == 13 and all(one.fault for one in samples[:-1])
    assert [one.fault for one in samples[-2:]] == ["GPUs: gone", ""]


def test_a_closed_record_writes_into_no_other_file(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.record.close()
    with (tmp_path / "other").open("w"):
        story.at(1.0).start()
        assert not story.record.write("later", {})
    assert (tmp_path / "other").read_bytes() == b"" and not story.warnings
