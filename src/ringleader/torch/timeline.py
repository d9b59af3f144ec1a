"""Timelines that a script starts and stops itself."""

from __future__ import annotations

from ringleader.collectives.session import PROCESS


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Write what operations go through from now on to a file, a Chrome trace, in place of what it held.

    Rank 0 writes alone, or each rank its own where the name has ``{rank}`` in it. ``mark_cycles`` shows each
    meeting of the ranks. A timeline that is being written ends first. Raises `ValueError` before `init`, and
    where HOROVOD_TIMELINE or RINGLEADER_TIMELINE was not set at that time (``DYNAMIC`` writes nothing before
    this); OSError where the file cannot be written.
    """
    timelines = PROCESS.get().timelines
    if not timelines.options.dynamic:
        raise ValueError("Set HOROVOD_TIMELINE=DYNAMIC to enable dynamic timeline usage.")
    timelines.start(file_path, mark_cycles=mark_cycles)


def stop_timeline() -> None:
    """End the timeline that is being written, if there is one; `ValueError` before `init`."""
    PROCESS.get().timelines.stop()
