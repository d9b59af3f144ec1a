"""One rank of a pool: it carries out one program after another, each as ``python PROGRAM`` would.

argv: the pool's socket. A program begins without the engine and with its own environment, and what it
leaves (a living engine, modules beside it, changed streams) is ended here, so that the next one begins alike.
"""

import contextlib
import faulthandler
import gc
import json
import os
import runpy
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import ringleader.torch as hvd


@contextlib.contextmanager
def streams(files: list[str]) -> Iterator[None]:
    """Have what goes to standard output and error end up in two files, also what C code prints."""
    kept = [os.dup(1), os.dup(2)]
    try:
        for number, path in enumerate(files, start=1):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(file, number)
            os.close(file)
        yield
    finally:
        for number, (stream, before) in enumerate(zip((sys.stdout, sys.stderr), kept, strict=True), start=1):
            stream.flush()
            os.dup2(before, number)
            os.close(before)


@contextlib.contextmanager
def surroundings(program: str, arguments: list[str], environ: dict[str, str]) -> Iterator[None]:
    """What a process of its own would find; afterwards all is as before."""
    before = dict(os.environ), sys.argv, list(sys.path), set(sys.modules), sys.excepthook
    faked = [(module, dict(vars(module))) for module in (torch.distributed, torch.cuda, torch.cuda.nccl)]
    place = str(Path(program).parent)
    os.environ.update(environ)
    sys.argv = [program, *arguments]
    sys.path.insert(0, place)
    torch.manual_seed(os.getpid())
    try:
        with warnings.catch_warnings():
            yield
    finally:
        variables, sys.argv, sys.path[:], modules, sys.excepthook = before
        os.environ.clear()
        os.environ.update(variables)
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(f"{place}/"):
                del sys.modules[name]
        for module, names in faked:
            vars(module).update(names)
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def carry_out(task: dict[str, Any]) -> dict[str, Any]:
    """Run a program to its end; return what would be its exit code, and whether it broke off."""
    began = time.process_time()
    left: dict[str, Any] = {}
    code, broken = 0, False
    with streams(task["streams"]), surroundings(task["program"], task["arguments"], task["environ"]):
        try:
            left = runpy.run_path(task["program"], run_name="__main__")
        except SystemExit as error:
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        except BaseException:
            traceback.print_exc()
            code, broken = 1, True
        # In this order also at the end of a process: first the engine, then what the program still holds.
        hvd.shutdown()
        left.clear()
        gc.collect()
    return {"code": code, "broken": broken, "seconds": time.process_time() - began}


def main(path: str) -> None:
    # A pool that gives a rank up asks first where it stands.
    faulthandler.register(signal.SIGUSR1)
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        stream = line.makefile("rw")
        rank = os.environ.get("RANK_POOL_RANK") or os.environ["OMPI_COMM_WORLD_RANK"]
        hello = {"rank": int(rank), "pid": os.getpid()}
        stream.write(json.dumps(hello) + "\n")
        stream.flush()
        for text in stream:
            stream.write(json.dumps(carry_out(json.loads(text))) + "\n")
            stream.flush()


if __name__ == "__main__":
    main(sys.argv[1])
