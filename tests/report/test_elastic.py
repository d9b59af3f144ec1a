"""What an elastic job went through, from the file that ``run --json-file`` wrote."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringleader.bench.run_file import MOST_RANKS, elastic_document, read_any
from ringleader.errors import RequestError
from ringleader.launch.elastic_history import Event, event_json
from ringleader.report.compare import compare
from ringleader.report.page import render
from ringleader.report.text import runs_text

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


def test_events_are_a_table_in_every_format(tmp_path: Path) -> None:
    run = read_any(stored(tmp_path / "job.json"))
    text, markdown, page = runs_text([run]), runs_text([run], "markdown"), render(run)
    assert run.name == "job"
    for event, parts in (
        ("generation 2", ("5.50 s", "2 ranks", "rank 1 was replaced", "500 ms", "17")),
        ("rank failed", ("rank 1 on h2", "was killed by SIGKILL")),
    ):
        (line,) = [line for line in text.splitlines() if event in line]
        assert all(part in line for part in parts), line
    assert "it continued with different ranks once, losing 500 ms of training time" in text
    assert "succeeded after 9.00 s" in text
    assert "python train.py" in markdown and "openmpi5 5.0.8" in markdown
    document = json.loads(runs_text([run], "json"))
    assert document["kind"] == "job" and len(document["events"]) == 3
    (reset,) = document["results"][0]["resets"]
    assert (reset["generation"], reset["seconds"], reset["commit"]) == (2, 0.5, 17)
    assert "What happened" in page and "rank 1 was replaced" in page
    text = runs_text([read_any(stored(tmp_path / "job.json", exit_code=7, reason="rank 0 ended"))])
    assert "failed with exit code 7" in text and "The job failed: rank 0 ended." in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 2}, "schema 2"),
        ({"seconds": "long"}, "is not a number"),
        ({"elastic": {"events": [{"at": -1, "kind": 3}]}}, "who: is missing"),
        ({"elastic": {"events": 3}}, "is not a list"),
        ({"elastic": None}, "is not a stored run"),
    ],
)
def test_what_is_no_outcome_of_ours_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        read_any(stored(tmp_path / "job.json", **changes))


@pytest.mark.parametrize("size", [3.0, True, -1, 1 << 40, "2"])
def test_a_size_that_no_generation_has_is_left_out(tmp_path: Path, size: object) -> None:
    events = [event_json(EVENTS[0]), {**event_json(EVENTS[2]), "size": size}]
    try:
        assert read_any(stored(tmp_path / "job.json", elastic={"events": events})).ranks == 2
    except RequestError as error:
        assert "size: " in str(error)


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
