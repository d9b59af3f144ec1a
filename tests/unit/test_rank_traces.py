"""Traces that agents send: they are written while they arrive, and named when the job has ended."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringleader.agents import protocol
from ringleader.launch.launch_job import _keep_traces
from ringleader.launch.supervision.ranks import RankState
from ringleader.launch.supervision.session import Session


class Job:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        places: list[Any] = [SimpleNamespace(rank=rank) for rank in range(2)]
        host: Any = SimpleNamespace()
        self.ranks = {place.rank: RankState(place=place, host=host) for place in places}
        self.warnings: list[str] = []

    def sends(self, rank: int, *pieces: bytes) -> None:
        session: Any = SimpleNamespace(
            ranks=self.ranks, job=SimpleNamespace(profile_dir=str(self.directory)), files=None
        )
        connection: Any = SimpleNamespace(rank=rank)
        for piece in pieces:
            Session.frame(session, connection, protocol.BLOB, piece)

    def ends(self) -> dict[str, bytes]:
        listener: Any = SimpleNamespace(warning=self.warnings.append)
        _keep_traces(self.directory, tuple(self.ranks.values()), listener)
        return {path.name: path.read_bytes() for path in self.directory.iterdir()}


def test_pieces_are_in_a_file_and_not_in_memory(tmp_path: Path) -> None:
    job = Job(tmp_path)
    (tmp_path / "rank-0.json.gz.part").write_bytes(b"of a start before this one")
    (tmp_path / "rank-7.json.gz.part").write_bytes(b"the same")
    job.sends(0, b"ab", b"cd")
    assert (tmp_path / "rank-0.json.gz.part").read_bytes() == b"abcd"
    assert job.ranks[0].result == b""
    assert (job.ends(), job.warnings) == ({"rank-0.json.gz": b"abcd"}, [])


def test_a_trace_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path)
    job.sends(1, b"xy")
    job.sends(0, b"ab")
    opened = Path.open

    def fail(self: Path, *words: Any) -> Any:
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(Path, "open", fail)
    job.sends(0, b"cd")
    monkeypatch.setattr(Path, "open", opened)
    job.sends(0, b"ef")
    assert job.ends() == {"rank-1.json.gz": b"xy"}
    (warning,) = job.warnings
    assert warning.endswith("the trace of rank 0 cannot be written: No space left on device")
