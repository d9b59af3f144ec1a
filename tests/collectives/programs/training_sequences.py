"""A rank that carries out sequences of `tests/sequences`, each with its own model and optimizer.

training_sequences.py SOCKET     sequences come as lines of JSON, one answer each

A sequence names its layout, for which the engine begins a new life where it had another one.
"""

import gc
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from serving import serve

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.sequences.script import Script
from tests.sequences.worlds import Ranks

import ringleader.torch as hvd

os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
COLLECT_EVERY = 50
"""A collection takes as long as a sequence."""
SETS: dict[tuple[int, ...], Any] = {}


def begin(per_host: str) -> None:
    """Begin a life of the engine with this many ranks on each host; "": all on one."""
    hvd.shutdown()
    SETS.clear()
    os.environ["RINGLEADER_RANKS_PER_HOST"] = per_host
    hvd.init()


def carry_out(sequence: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records of a sequence."""
    if os.environ["RINGLEADER_RANKS_PER_HOST"] != sequence["per_host"]:
        begin(sequence["per_host"])
    if sequence["seed"] % COLLECT_EVERY == 0:
        gc.collect()
    return Script(sequence, Ranks(hvd, SETS)).run()


begin("")
warnings.simplefilter("ignore")
serve(sys.argv[1], carry_out, lambda: begin(os.environ["RINGLEADER_RANKS_PER_HOST"]))
