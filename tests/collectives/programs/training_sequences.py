"""A rank that carries out sequences of `tests/sequences`, each with its own model and optimizer.

training_sequences.py SOCKET     sequences come as lines of JSON, one answer each

A sequence names its layout, for which the engine begins a new life where it had another one.
"""

import faulthandler
import gc
import json
import os
import signal
import socket
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.sequences.script import Script
from tests.sequences.worlds import Ranks

import ringleader.torch as hvd

os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
faulthandler.register(signal.SIGUSR1, all_threads=True)
COLLECT_EVERY = 50
"""A collection takes as long as a sequence."""
SETS: dict[tuple[int, ...], Any] = {}


def begin(per_host: str) -> None:
    """Begin a life of the engine with this many ranks on each host; "": all on one."""
    hvd.shutdown()
    SETS.clear()
    os.environ["RINGLEADER_RANKS_PER_HOST"] = per_host
    hvd.init()


def carry_out(sequence: dict[str, Any] | None) -> dict[str, Any]:
    """Return the records of a sequence, or why it failed; None begins a new life."""
    try:
        if sequence is None:
            begin(os.environ["RINGLEADER_RANKS_PER_HOST"])
            return {"records": []}
        if os.environ["RINGLEADER_RANKS_PER_HOST"] != sequence["per_host"]:
            begin(sequence["per_host"])
        return {"records": Script(sequence, Ranks(hvd, SETS)).run()}
    except Exception:
        # The ranks that wait for this one fail too.
        said = traceback.format_exc()
        hvd.shutdown()
        return {"failed": said}


def serve(path: str) -> None:
    """Answer every sequence with a line of JSON, until no more come."""
    begin("")
    warnings.simplefilter("ignore")
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        stream = line.makefile("rw")
        stream.write(json.dumps({"rank": hvd.rank(), "pid": os.getpid()}) + "\n")
        stream.flush()
        for number, text in enumerate(stream):
            stream.write(json.dumps(carry_out(json.loads(text))) + "\n")
            stream.flush()
            if number % COLLECT_EVERY == 0:
                gc.collect()


if __name__ == "__main__":
    serve(sys.argv[1])
    hvd.shutdown()
    print("rank done", flush=True)
