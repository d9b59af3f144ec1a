"""One process of a part of `gpu.py`: its result file and deadline. What parts try is in gpu_*.py beside it.

    python benchmarks/gpu_process.py PART

`gpu.py` names in the environment where the result goes (GPU_PART_DIR), the device (GPU_PART_DEVICE) and when
the part ends, in seconds since 1970 (GPU_PART_END). A process writes ``result-PID.json`` at each stage, so
that the last one is known wherever it is stopped. With the device ``cpu`` the same code rehearses, over Gloo.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]
REHEARSAL = os.environ.get("GPU_PART_DEVICE", "cuda") == "cpu"
PLACE = Path(os.environ.get("GPU_PART_DIR", "."))
END = float(os.environ.get("GPU_PART_END") or time.time() + 60.0)

PARTS = {
    **dict.fromkeys(("first", "contract", "raw", "nccl"), "gpu_operations"),
    **dict.fromkeys(("optimizer", "sharding", "half", "graphs", "compiled", "elastic"), "gpu_training"),
    **dict.fromkeys(("sets", "ddp", "steps"), "gpu_training"),
    **dict.fromkeys(("doctor", "jax_arrays"), "gpu_others"),
}
"""The function of each part, and its module: JAX's must not load PyTorch's libraries of CUDA."""


class NotRunError(Exception):
    """What this machine lacks for the part."""


class Report:
    """The result of this process, rewritten at each stage."""

    def __init__(self) -> None:
        """Begin."""
        self.details: dict[str, Any] = {}
        self.at = "start"

    def stage(self, name: str) -> None:
        """Say what comes next."""
        self.at = name
        self.write("unfinished", "")

    def write(self, result: str, note: str, trace: list[str] | None = None) -> None:
        """Put the result where `gpu.py` reads it, all of it or nothing."""
        rank = os.environ.get("RANK", "0")
        value = {"result": result, "rank": int(rank), "stage": self.at, "note": note, "details": self.details}
        path = PLACE / f"result-{os.getpid()}.json"
        path.with_suffix(".new").write_text(json.dumps({**value, "trace": trace or []}))
        path.with_suffix(".new").replace(path)


def main() -> None:
    """Run one part; the result is in its file, and the exit code is 1 where it failed."""
    # A rank that stands still says where, and ends by itself before the part is stopped from outside.
    faulthandler.dump_traceback_later(max(2.0, END - time.time() - 6.0), exit=True)
    # NCCL refuses two ranks on one GPU of a host. With a host id for each rank it takes them for ranks of
    # several hosts. The first communicator reads the variable, once.
    os.environ["NCCL_HOSTID"] = f"rank-in-process-{os.getpid()}"
    report = Report()
    report.stage("imports")
    try:
        name = sys.argv[1]
        # The module of this name, not a second one: the class of errors must be the same.
        sys.modules.setdefault("gpu_process", sys.modules[__name__])
        note = getattr(import_module(PARTS[name]), name)(report)
    except NotRunError as error:
        report.write("not run", str(error))
        return
    except BaseException as error:
        lines = "".join(traceback.format_exception(error)).splitlines()
        said = (str(error).strip().splitlines() or [""])[0]
        report.write("failed", f"{type(error).__name__}: {said}"[:500], lines[-25:])
        traceback.print_exc()
        sys.exit(1)
    report.at = "the end"
    report.write("passed", note)


if __name__ == "__main__":
    main()
