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
