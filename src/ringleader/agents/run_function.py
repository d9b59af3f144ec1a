"""Runs the function of ``ringleader.run`` in a rank: ``python -m ringleader.agents.run_function``.

The agent puts the pickled call into a private file and sends the file with the result back, so nothing of it
passes through arguments, the environment or standard output.
"""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from pathlib import Path
from typing import Any

import cloudpickle

FAILED = 1


def main() -> int:
    """Call the function; return the rank's exit code."""
    call = Path(os.environ.pop("RINGLEADER_CALL_IN"))
    result = Path(os.environ.pop("RINGLEADER_CALL_OUT"))
    try:
        package = pickle.loads(call.read_bytes())
        sys.path[:] = list(dict.fromkeys((*package["path"], *sys.path)))
        function, args, kwargs = pickle.loads(package["call"])
        value = function(*args, **kwargs)
    except Exception as error:
        write(result, failed(error))
        return FAILED
    try:
        answer = {"value": cloudpickle.dumps(value)}
    except Exception as error:
        write(result, {"unpicklable": f"{type(value).__name__}: {error}"})
        return FAILED
    write(result, answer)
    return 0


def failed(error: Exception) -> dict[str, Any]:
    """Return what the caller needs to raise it again: the exception, where it can travel, and its words."""
    text = "".join(traceback.format_exception(error))
    words = "".join(traceback.format_exception_only(error)).strip()
    try:
        travels = cloudpickle.dumps(error)
        pickle.loads(travels)  # an exception with its own __init__ may go in and not come out
    except Exception:
        travels = None
    return {"error": travels, "words": words, "traceback": text}


def write(path: Path, answer: dict[str, Any]) -> None:
    """Write an answer for the agent to send, readable by nobody else."""
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        pickle.dump(answer, file)


if __name__ == "__main__":
    sys.exit(main())
