"""Temporary directories of commands: removed at the end, or by the next command where the maker was killed.

They lie among the directories of jobs (``job_directory.py``), under the same locks, so one sweep finds all.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ringleader.agents import job_directory, rank_identity


@contextlib.contextmanager
def directory(kind: str) -> Iterator[Path]:
    """Make a directory that only we can enter; ``kind`` is a short lower-case word in its path.

    What dead commands and jobs of this user left in the same place is removed first. Raises OSError where
    there is no place for it, or somebody else has taken the place.
    """
    base = job_directory.base_directory(tempfile.gettempdir(), os.getuid())
    key = rank_identity.host_key(rank_identity.host_identity())
    job_directory.sweep(base, key)
    held = job_directory.JobDirectory(f"{base}/{kind}-{os.urandom(4).hex()}", key)
    try:
        made = Path(held.path, "data")
        made.mkdir(mode=0o700)
        yield made
    finally:
        held.leave()
