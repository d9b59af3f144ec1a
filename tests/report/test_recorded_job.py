"""The page of a run: goodput by hand, and what is said, drawn and written of it."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.report.recorded import Story, trained
from tests.report.test_page import read, references
from tests.unit.test_trace_split import on_cpus, split_of

from ringleader.bench.run_file import MOST_RANKS, elastic_document, read_any
from ringleader.errors import RequestError
from ringleader.launch.elastic_history import Event, event_json
from ringleader.launch.job_record import Started, Steps
from ringleader.measurements.recorded_job import JobRun, quantile
from ringleader.report.compare import compare
from ringleader.report.page import render
from ringleader.report.recorded_job import series, summary
from ringleader.report.text import runs_text
from ringleader.report.trace_tables import tables


def elastic(directory: Path) -> JobRun:
    """Steps of 0.5 s from 2 s on, a commit at 4 s, a failure after 6 s; again from 7 s to 10 s."""
    story = Story(directory)
    story.at(2.0).start(generation=1)
    for number in range(1, 15):
        if number == 9:
            story.at(6.2).record.happened("rank_failed", "rank 1 (h1)", "ended by SIGKILL")
            story.at(7.0).start(generation=2, commit=17, fresh=False)
        story.at((2.0 if number < 9 else 3.0) + number / 2)
        for rank in (0, 1):
            story.step(rank, 0.5)
        if number == 4:
            story.record.committed(17)
    return story.end(10.5)


def test_goodput_of_an_elastic_job(tmp_path: Path) -> None:
    run = elastic(tmp_path)
    parts = {"start": 2.0, "steps": 5.0, "unsure": 0, "again": 2.0, "pause": 0, "between": 1.0, "end": 0.5}
    assert run.wall_clock == pytest.approx(parts) and run.goodput == (pytest.approx(5 / 10.5),) * 2


def test_where_the_profiled_steps_went(tmp_path: Path) -> None:
    """``run --profile`` and ``ringleader analyze`` show the same; a record before that has none."""
    found = split_of(*on_cpus())
    story = Story(tmp_path / "profiled").at(1.0)
    story.start()
    story.at(1.5).step(0, 0.5)
    run = story.end(3.0, split=found)
    assert run.ended is not None and run.ended.split == found
    text, page = runs_text([run]), re.sub("[\u202f\xa0]", " ", render(run))
    assert "Where the profiled steps went" in text and re.search(r"rank 1 +100 ms +40.0 ms", text)
    assert "rank 1 was the last to enter 2 of 2 collectives" in text
    assert "Where the profiled steps went" in page and "Collectives of these steps" in page
    assert all(cell in page for table in tables(found) for row in table.rows for cell in row)
    assert "profiled steps" not in render(trained(tmp_path / "plain", seconds=10))


def restarted(directory: Path, numbers: tuple[int, int] | None) -> JobRun:
    """Steps of 0.5 s: ten from 1 s on; from 8 s on nine more. ``numbers``: of the first of both."""
    story = Story(directory)
    for life, (begin, count) in enumerate(((1.0, 10), (8.0, 9))):
        story.at(begin).start()
        for number in range(count):
            more = {"step": numbers[life] + number} if numbers else {}
            story.at(begin + (number + 1) / 2).step(0, 0.5, samples=4, **more)
        if not life:
            story.at(6.5).record.happened("restart", "all ranks, 1 of 1", "rank 0 failed")
    return story.end(13.0)


@pytest.mark.parametrize(
    ("numbers", "again", "goodput"),
    [
        ((1, 5), 3.0, (5.0 - 3.0 + 4.5,) * 2),  # steps 5 to 10 were made again
        ((1, 1), 5.0, (4.5, 4.5)),  # it begins again
        ((1, 11), 0.0, (9.5, 9.5)),  # nothing was lost
        (None, 0.0, (4.5, 9.5)),  # the script says nothing
    ],
)
def test_goodput_of_a_restarted_job(
    tmp_path: Path, numbers: tuple[int, int] | None, again: float, goodput: tuple[float, float]
) -> None:
    run = restarted(tmp_path, numbers)
    assert run.wall_clock["again"] == pytest.approx(again)
    assert run.wall_clock["between"] == pytest.approx(2.0)
    assert run.goodput == pytest.approx([seconds / 13.0 for seconds in goodput])
    assert ("step=N" in runs_text([run])) == (numbers is None)


def test_goodput_of_a_script_whose_optimizer_is_watched_is_exact(tmp_path: Path) -> None:
    """The job above, of two ranks: its optimizer's steps are reported, too, the first one at once."""
    story = Story(tmp_path)
    for begin, first in ((1.0, 1), (8.0, 5)):
        story.at(begin).start()
        ranks = (object(), object())
        for made in range(1, 11):
            for after, kind in enumerate(("steps", "progress")):
                story.at(begin + made / 2 + after / 1000)
                more = {"samples": 4 * made, "step": first + made - 1} if kind == "progress" else {}
                message = {"kind": kind, "by": "torch.optim", "steps": made, "seconds": story.now, **more}
                for rank, process in enumerate(ranks):
                    story.record.report(process, rank, message)
    run = story.end(13.5)
    assert sum(sum(line.steps) for line in run.steps) == 2 * 20, "a step that two reports count is one step"
    assert run.wall_clock["again"] == pytest.approx(3.0, abs=0.02) and not run.wall_clock["unsure"]
    assert run.goodput == (pytest.approx((2.0 + 5.0) / 13.5, abs=0.002),) * 2


@pytest.mark.parametrize(
    "line", ['{"at":3,"ranks":[0]}', '{"at":3,"ranks":[],"steps":[]}', '{"at":3,"ranks":[0],"number":4}']
)
def test_a_line_without_a_step_is_read(tmp_path: Path, line: str) -> None:
    story = Story(tmp_path)
    for begin in (1.0, 4.0):
        story.at(begin).start()
        story.at(begin + 1).step(0, 0.5)
    story.record.close()
    path = tmp_path / "record.jsonl"
    path.write_text(f'{path.read_text()}{{"steps":{line}}}\n')
    assert "step" in runs_text([story.read()])


def test_the_page_of_a_long_record_takes_time_in_proportion(tmp_path: Path) -> None:
    class Counted(tuple[Steps, ...]):
        scanned = 0

        def __iter__(self) -> Iterator[Steps]:
            Counted.scanned += 1
            return super().__iter__()

    lines = [Steps(at=float(at), ranks=(0,), steps=(1.0,), seconds=(1.0,)) for at in range(1, 4000)]
    start = Started(at=0.0, hosts=("h1",))
    run = replace(trained(tmp_path), steps=Counted(lines), samples=(), starts=(start,))
    assert series(run) and summary(run).headline and Counted.scanned < 20


def test_a_pause_is_no_step(tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.at(0.0).start()
    times = [1 + number / 2 for number in range(9)]
    for at in times + [one + 9 for one in times]:
        story.at(at).step(0, 0.5)
    run = story.end(15.0)
    assert run.wall_clock["pause"] == pytest.approx(4.5)
    assert run.goodput is not None and run.goodput[0] == pytest.approx(9 / 15)


def test_numbers_of_a_run(tmp_path: Path) -> None:
    run = trained(tmp_path / "a", slow=1.6)
    assert quantile(run.times, 0.5) == pytest.approx(0.25, rel=0.05)
    (result,) = json.loads(runs_text([run], "json"))["results"]
    assert result["rate"] == pytest.approx(256.0, rel=0.01)
    assert result["goodput"] == {"least": pytest.approx(0.95), "most": pytest.approx(0.95)}


TITLES = """\
Rate|Time of a step|Steps of each rank|Waiting of each rank|Bytes per second|GPU utilization|GPU power|\
GPU clock|GPU memory in use|Where the wall clock went|Ranks|Interfaces, ports and GPUs|To measure this"""


def test_the_page_of_a_run(tmp_path: Path) -> None:
    page = render(trained(tmp_path, slow=1.6))
    reader = read(page)
    assert set(references(reader)) <= set(reader.ids) and not re.search(r"https?:", page)
    text = "".join(reader.text)
    assert [title for title in TITLES.split("|") if title not in text] == []


def test_a_run_without_a_step_has_a_page(tmp_path: Path) -> None:
    run = Story(tmp_path / "a").end(3.0, code=1, reason="rank 0 (h1) failed")
    page = render(run)
    assert "no step was reported" in page and "The job failed: rank 0 (h1) failed." in page
    assert run.goodput is None and run.failure == "rank 0 (h1) failed"
    # A rate beyond any number has no series.
    step = Steps(at=2.0, ranks=(0,), steps=(2.0,), seconds=(5e-324,), samples=(8.0,))
    run = replace(trained(tmp_path / "b", seconds=4), steps=(step,))
    assert not [one for one in series(run) if one.name == "rate"] and render(run)
    story = Story(tmp_path / "c").at(1.0)
    story.start()
    story.at(2.0).step(0, 0.5)
    assert "running for 2.00 s" in summary(story.read()).headline
    story.record.close()
    assert "the record stops after 2.00 s" in summary(story.read()).headline


def test_series_have_the_rate_and_the_bytes_of_each_second(tmp_path: Path) -> None:
    run = trained(tmp_path)
    found = {(one.name, *one.labels.values()): one.points for one in series(run)}
    rates = [value for _at, value in found[("rate",)]]
    assert rates == [pytest.approx(256.0)] * len(rates)
    port = found["sent_bytes_per_second", "h2", "mlx5_0/1"]
    assert [value for _at, value in port] == [pytest.approx(8e8)] * len(port)
    assert found[("goodput_ratio",)] == ((40.0, pytest.approx(0.95)),)
    steps = found["rank_step_seconds", "1", "h2"]
    assert [value for _at, value in steps] == [pytest.approx(0.25)] * len(steps)


def test_two_runs_are_compared_by_their_stretches(tmp_path: Path) -> None:
    before, after = trained(tmp_path / "a"), trained(tmp_path / "b", step=0.5)
    result = compare(before, after)
    by_name = {one.name: one for one in result.matches}
    assert by_name["rate"].verdict == "slower" and by_name["rate"].ratio == pytest.approx(0.5)
    assert by_name["step, p50"].verdict == "cannot tell: one repetition"
    assert "goodput" in by_name


BEGUN = Event(at=1.0, kind="generation", who="2 ranks", generation=1, size=2)
EVENTS = (
    BEGUN,
    Event(at=5.0, kind="rank_failed", who="rank 1 on h2", why="was killed by SIGKILL"),
    replace(BEGUN, at=5.5, why="rank 1 was replaced", seconds=0.5, commit=17, generation=2),
)


def outcome(**changes: Any) -> dict[str, Any]:
    elastic = {"generations": 2, "worlds": 1, "ranks_started": 3, "events": list(map(event_json, EVENTS))}
    mpi = {"family": "openmpi5", "version": "5.0.8", "mpirun": "/usr/bin/mpirun"}
    hosts = [{"name": "h1", "hostname": "one", "ranks": 2}]
    ended = {"exit_code": 0, "whose": "", "reason": "", "seconds": 9.0}
    about = {"format": 1, "ringleader": "1", "command": ["python", "train.py"], "mpi": mpi, "hosts": hosts}
    return {**about, **ended, "elastic": elastic, **changes}


def stored(path: Path, **changes: Any) -> Path:
    path.write_text(json.dumps(outcome(**changes)))
    return path


def test_events_are_in_json_and_on_the_page(tmp_path: Path) -> None:
    run = read_any(stored(tmp_path / "job.json"))
    document, page = json.loads(runs_text([run], "json")), render(run)
    assert document["kind"] == "job" and len(document["events"]) == 3
    (reset,) = document["results"][0]["resets"]
    assert (reset["generation"], reset["seconds"], reset["commit"]) == (2, 0.5, 17)
    assert "What happened" in page and "rank 1 was replaced" in page


def test_ranks_of_many_generations_are_not_added_up() -> None:
    sizes = (5, MOST_RANKS // 8, *[9] * 50, MOST_RANKS // 9)
    events = [{**event_json(EVENTS[2]), "size": size} for size in sizes]
    made = elastic_document(outcome(elastic={"events": events}), "job")
    assert isinstance(made, dict) and [len(one["hosts"]) for one in made["starts"]] == [MOST_RANKS // 8]


def test_two_jobs_are_shown_but_not_compared(tmp_path: Path) -> None:
    one, two = (read_any(stored(tmp_path / name)) for name in ("a.json", "b.json"))
    with pytest.raises(RequestError, match="no step was reported in a"):
        compare(one, two)
    assert runs_text([one, two]).count("What happened") == 2
