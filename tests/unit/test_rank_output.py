"""What ranks print, on its way: what agents are granted, and the files of ``--output``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ringleader.agents import protocol
from ringleader.launch.rank_output import OutputFiles
from ringleader.launch.supervision.ranks import OutputFlow


class Reader:
    """A listener that has taken all but ``left`` bytes."""

    def __init__(self) -> None:
        self.left = 0

    def waiting(self) -> int:
        return self.left


class Rank:
    """As far as the flow looks at one."""

    to_grant, window = 0, protocol.window(500)


def test_bytes_are_granted_once_and_only_while_somebody_reads() -> None:
    granted: list[int] = []
    reader: Any = Reader()
    rank: Any = Rank()
    flow = OutputFlow(reader, None, lambda _state, do, **words: granted.append(words["bytes"]))
    half = rank.window // 2
    flow.took(rank, half - 1)
    assert granted == [], "too few for a message"
    flow.took(rank, 1)
    flow.took(rank, half)
    assert granted == [half, half], "no byte twice: a rank would have more on its way than its window"
    reader.left = 1 << 30
    flow.took(rank, half)
    flow.tick()
    assert granted == [half, half] and flow.held == {rank}
    reader.left = 0
    flow.tick()
    assert granted == [half] * 3 and not flow.held


def test_the_files_of_output_hold_what_was_written_and_are_closed(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    files = OutputFiles(str(tmp_path), 11)
    files.write(3, "stderr", b"one\n")
    files.write(3, "stderr", b"two")
    assert files.close() == ""
    assert os.listdir("/proc/self/fd") == before
    assert (tmp_path / "rank.03/stderr").read_bytes() == b"one\ntwo"
    assert len(list(tmp_path.glob("rank.*/std*"))) == 22


def test_many_ranks_together_have_no_more_on_its_way_than_some_do() -> None:
    sizes = [protocol.window(ranks) for ranks in (1, 64, 128, 1024, 100_000)]
    assert sizes == [1 << 20, 1 << 20, 1 << 19, 1 << 16, 1 << 14], "but some each"
