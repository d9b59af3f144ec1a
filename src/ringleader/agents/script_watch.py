"""What a rank's Python reports of a script that reports nothing itself: its steps and its collectives.

``python_startup/sitecustomize.py`` loads this file by its path once the script imports one of the modules
that are watched, so it needs the standard library of Python 3.8 alone. Nothing here changes what the
script computes, and none of its errors reaches the script.

Steps are counted by PyTorch's hooks of all optimizers, by Keras' callbacks and optimizers, and by optax
where it is not compiled. Collectives are those of PyTorch's flight recorder, which Gloo and NCCL both fill;
a thread reads them when the rank's agent asks, as the main thread may hang in one.
"""

from __future__ import annotations

import bisect
import functools
import json
import math
import os
import re
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

MOST_BYTES = 32 * 1024
"""Bytes of a record, half of what a pipe takes at once: the lines of others must not come in between."""
MOST_ENTRIES = 160
BUFFER_SIZE = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""Collectives that PyTorch keeps. Versions that know the first variable warn of the second."""
OWN_NANOSECONDS = 10 * 10**9
"""Between two reports of how steps were spent: each reads all of the flight recorder."""
LEAST_PAUSE = 1000
"""How many times longer than such a reading the time to the next one is at least: the script waits for it."""
MOST_STEPS = 1000
FEW = 64
"""Elements of a collective that may be a loss or a count, and not gradients."""
POLL_SECONDS = 0.25
"""Between two looks at the counter of a compiled Keras optimizer."""
LIBRARY = re.compile(r"/(site|dist)-packages/|/lib(64)?/python3\.\d+/|^<frozen |/ringleader/agents/")
"""Files in which no script stands."""
RAS_ADDRESS = "127.0.0.1:28028"
RAS_SECONDS = 1.0
"""For each of its answers; the launcher waits some seconds for all that it asks."""
RAS_SINCE = (2, 28, 7)


def nothing(*_arguments: object) -> None:
    """Do nothing."""


def around(
    owner: Any, name: str, *, before: Callable[..., object] = nothing, after: Callable[..., object] = nothing
) -> None:
    """Have a function call others before and after it with its positional arguments; theirs are no errors."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def watched(*arguments: Any, **words: Any) -> Any:
        with suppress(Exception):
            before(*arguments)
        found = function(*arguments, **words)
        with suppress(Exception):
            after(*arguments)
        return found

    setattr(owner, name, watched)


def quiet(hook: Callable[..., object]) -> Callable[..., None]:
    """Return a hook of PyTorch whose errors are none of the script's."""

    def quiet_hook(*arguments: object) -> None:
        with suppress(Exception):
            hook(*arguments)

    return quiet_hook


class Steps:
    """Counts steps by several counters at once; of those that count the same steps the farthest counts."""

    def __init__(self, at: Callable[[int, str], object], begins: Callable[[], object] = nothing) -> None:
        """``at(steps, by)`` hears each new number of steps, ``begins()`` when optimizers begin a step."""
        self.at, self._begins = at, begins
        self._counts: dict[str, int] = {}
        self._most = 0
        self._stepped: set[int] = set()
        self._armed = False

    def add(self, by: str, steps: int) -> None:
        """Note more steps of a counter."""
        count = self._counts[by] = self._counts.get(by, 0) + steps
        if count > self._most:
            self._most = count
            self.at(count, by)

    def before_torch(self, optimizer: object, *_arguments: object) -> None:
        """Note that a step of an optimizer begins: a wrapper's step holds that of what it wraps."""
        if not self._armed and (id(optimizer) in self._stepped or not self._stepped):
            self._begins()
        self._armed = True

    def after_torch(self, optimizer: object, *_arguments: object) -> None:
        """Note that a step of an optimizer has ended; several optimizers that take turns make one step."""
        if self._armed:
            self._armed = False
            if id(optimizer) in self._stepped or not self._stepped:
                self._stepped.clear()
                self.add("torch.optim", 1)
            self._stepped.add(id(optimizer))


class Watch:
    """What is watched in one process."""

    def __init__(self, progress: Any, write: Callable[[bytes], object], status_file: str) -> None:
        """``progress``: the module `training_progress`. ``write`` writes a line to the report pipe."""
        self._write, self._status_file = write, status_file
        self.steps = Steps(lambda steps, by: progress.start().at(steps, by), self._step_begins)
        self._listens = False
        self._left_at: list[Any] = []
        """Where an exception has left the script."""
        self._first = 0
        self._begun: deque[int] = deque(maxlen=MOST_STEPS)
        """When steps of optimizers began, in Unix time (ns)."""
        self._next = 0
        self._spent = (0, 0.0, 0.0)
        """Steps, their seconds, and those of them in which this rank waited, since the start."""
        self._iterations: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def begin(self, module: Any) -> None:
        """Watch a module that has just been imported."""
        name = module.__name__
        if name == "torch.optim.optimizer":
            # Or torch.compile would compile our hooks with a step.
            hidden = getattr(module.torch, "_disable_dynamo", lambda hook: hook)
            module.register_optimizer_step_pre_hook(hidden(quiet(self.steps.before_torch)))
            module.register_optimizer_step_post_hook(hidden(quiet(self.steps.after_torch)))
        elif name == "torch.distributed.distributed_c10d":
            begin = module.init_process_group
            around(module, "init_process_group", before=self.listen)
            package = sys.modules.get("torch.distributed")
            if package is not None and vars(package).get("init_process_group") is begin:
                vars(package)["init_process_group"] = module.init_process_group
        elif name == "keras.src.callbacks.callback_list":
            around(module.CallbackList, "on_train_batch_begin", before=self._batch_begins)
            around(module.CallbackList, "on_train_batch_end", before=self._batch_ends)
        elif name == "keras.src.optimizers.base_optimizer":
            around(module.BaseOptimizer, "apply", after=self._applied)
        elif name == "optax._src.update":
            around(module, "apply_updates", before=self._updates)

    def report(self, kind: str, **words: object) -> None:
        """Write a report."""
        self._write(json.dumps({"kind": kind, **words}).encode() + b"\n")

    # --- steps --------------------------------------------------------------------------------------------

    def _batch_begins(self, _callbacks: object, batch: int, *_arguments: object) -> None:
        self._first = batch

    def _batch_ends(self, _callbacks: object, batch: int, *_arguments: object) -> None:
        """Count the batches of ``Model.fit``: with ``steps_per_execution`` several at a time."""
        self.steps.add("keras", max(1, batch - self._first + 1))

    def _applied(self, optimizer: Any, *_arguments: object) -> None:
        """Count the calls of a Keras optimizer; one that TensorFlow has compiled counts by itself."""
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow is not None and not tensorflow.executing_eagerly():
            self._poll(optimizer)
        elif "jax" not in type(optimizer.iterations.value).__module__:
            self.steps.add("keras.optimizers", 1)

    def _updates(self, _parameters: object, updates: object) -> None:
        """Count the calls of ``optax.apply_updates`` outside ``jax.jit``, which calls it once."""
        jax = sys.modules["jax"]
        if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(updates)):
            self.steps.add("optax", 1)

    def _poll(self, optimizer: Any) -> None:
        if not self._iterations:
            threading.Thread(target=self._look, name="ringleader-steps", daemon=True).start()
        self._iterations.setdefault(optimizer, -1)

    def _look(self) -> None:
        """Read the counters of compiled optimizers now and then."""
        while True:
            time.sleep(POLL_SECONDS)
            try:
                for optimizer, before in list(self._iterations.items()):
                    now = int(optimizer.iterations.numpy())
                    self._iterations[optimizer] = now
                    if before >= 0 and now > before:
                        self.steps.add("keras.optimizers", now - before)
            except Exception:  # a variable of a graph, or of another place: it says nothing
                return

    def _step_begins(self) -> None:
        """Note the time, and report now and then how steps were spent."""
        if not self._listens:
            return
        now = time.time_ns()
        self._begun.append(now)
        if now < self._next:
            return
        took = 0
        if self._next:
            began = time.perf_counter_ns()
            try:
                entries = flight_entries(sys.modules["torch"]._C._distributed_c10d, gloo=True)
                found = waited(entries, list(self._begun))
            except Exception:  # another version of the recorder: nobody is compared
                self._next = 1 << 63
                return
            if found[0]:
                steps, seconds, waiting = self._spent
                self._spent = steps, seconds, waiting = (
                    steps + found[0],
                    seconds + found[1],
                    waiting + found[2],
                )
                self.report("own", steps=steps, step_seconds=seconds, waiting_seconds=waiting)
            self._begun.clear()
            self._begun.append(now)
            took = time.perf_counter_ns() - began
        self._next = next_reading(now, took)

    # --- collectives --------------------------------------------------------------------------------------

    def listen(self, *_arguments: object) -> None:
        """Have a thread ready to report collectives: the script is about to make process groups."""
        if self._listens or not self._status_file:
            return
        self._listens = True
        is_new = hasattr(sys.modules["torch"]._C._distributed_c10d, "_dump_fr_trace")
        if not any(name in os.environ for name in BUFFER_SIZE):
            os.environ[BUFFER_SIZE[not is_new]] = "2000"
        try:
            path = f"{self._status_file}.{os.getpid()}.ask"
            os.mkfifo(path, 0o600)
        except OSError:
            return  # no room, or the job's directory is gone: the rank is known by its stack alone
        threading.Thread(target=self._answer, args=(path,), name="ringleader-record", daemon=True).start()
        self.report("watched")

    def _answer(self, path: str) -> None:
        """Report collectives each time that the agent opens the pipe, which nobody has open in between."""
        while True:
            try:
                with open(path, "rb") as asked:  # noqa: PTH123
                    asked.read()
            except OSError:
                return
            self.record()

    def record(self, traceback: Any = None) -> None:
        """Report what this rank knows of its collectives; nothing where it has no process group.

        ``traceback``: of the exception that has left the script.
        """
        if not self._listens:
            return
        try:
            self._left_at = script_line(traceback) or self._left_at
            self._write(line_of({**self._record(), "at": self._left_at}))
        except Exception as error:
            self.report("collectives", pid=os.getpid(), why=f"{type(error).__name__}: {error}"[:300])

    def _record(self) -> dict[str, Any]:
        c10d = sys.modules["torch.distributed.distributed_c10d"]
        found = flight_record(sys.modules["torch"]._C._distributed_c10d)
        record: dict[str, Any] = {
            "kind": "collectives",
            "pid": os.getpid(),
            "rank": -1,
            "size": 0,
            "groups": {},
        }
        if c10d.is_initialized():
            world = c10d._world
            record.update(rank=c10d.get_rank(), size=c10d.get_world_size())
            record["groups"] = {
                str(world.pg_names[group]): sorted(int(rank) for rank in world.pg_group_ranks[group])
                for group in world.pg_map
            }
        if any(entry["backend"] == "nccl" for entry in found) and os.environ.get("LOCAL_RANK", "0") == "0":
            record["ras"] = nccl_ras()
        record["entries"] = found
        return record


def flight_entries(library: Any, *, gloo: bool = False) -> list[dict[str, Any]]:
    """Return what PyTorch's flight recorders know, the oldest first. ``gloo``: of CPUs alone.

    Without the frames of calls, for which PyTorch would import its compiler: seconds in a rank that hangs.
    """
    import pickle  # of this process's own memory

    entries: list[dict[str, Any]] = []
    for name in ("_dump_fr_trace",) if gloo else ("_dump_fr_trace", "_dump_nccl_trace"):
        dump = getattr(library, name, None)
        if dump is not None:
            entries += pickle.loads(dump(True, False, False)).get("entries") or []
    return sorted(entries, key=lambda entry: entry["time_created_ns"])


def flight_record(library: Any) -> list[dict[str, Any]]:
    """Return the latest collectives as a record has them."""
    now = time.time_ns()
    return [entry_of(entry, now) for entry in flight_entries(library)[-MOST_ENTRIES:]]


def next_reading(now: int, took: int) -> int:
    """Return when the flight recorder may be read again (ns): a thousandth of the time is spent on it."""
    return now + max(OWN_NANOSECONDS, LEAST_PAUSE * took)


def waited(entries: Sequence[Mapping[str, Any]], begun: Sequence[int]) -> tuple[int, float, float]:
    """Return steps, their seconds, and the seconds in them that a rank waited at the end of a backward pass.

    ``begun``: when optimizers began their steps (ns). Gradients that all ranks exchange are complete for all
    of them at about the same time, so a rank waits from its last such call until it continues: to its next
    call, such as that of a loss to be printed, or to the optimizer.
    """
    calls = sorted(
        (entry["time_created_ns"], sum(math.prod(size) for size in entry["input_sizes"]) > FEW)
        for entry in entries
        if not entry.get("is_p2p")
    )
    times = [at for at, _is_large in calls]
    steps, seconds, waiting = 0, 0.0, 0.0
    for begin, end in zip(begun, begun[1:]):  # noqa: B905, RUF007 - Python 3.8 has neither
        inside = calls[bisect.bisect_right(times, begin) : bisect.bisect_left(times, end)]
        large = [number for number, (_at, is_large) in enumerate(inside) if is_large]
        if large:
            last = large[-1]
            goes_on = inside[last + 1][0] if last + 1 < len(inside) else end
            steps += 1
            seconds += (end - begin) / 1e9
            waiting += (goes_on - inside[last][0]) / 1e9
    return steps, seconds, waiting


def entry_of(entry: Mapping[str, Any], now: int) -> dict[str, Any]:
    """Return what a record has of an entry of the flight recorder (``FlightRecorder.hpp``, format 2)."""
    backend, _, op = str(entry["profiling_name"]).partition(":")
    # Gloo never says "completed": its entries are retired when their work has ended.
    done = entry["state"] == "completed" or (backend != "nccl" and bool(entry.get("retired")))
    return {
        "group": str(entry["process_group"][0]),
        "backend": backend,
        "op": op or backend,
        "seq": entry["collective_seq_id"],
        "p2p": bool(entry.get("is_p2p")),
        "sizes": entry["input_sizes"],
        "dtypes": entry.get("input_dtypes") or [],
        "done": done,
        "age": round((now - entry["time_created_ns"]) / 1e9, 3),
    }


def script_line(traceback: Any) -> list[Any]:
    """Return file, line and function of the innermost frame that is the script's; empty: none is known."""
    found: list[Any] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not LIBRARY.search(code.co_filename):
            found = [code.co_filename, traceback.tb_lineno, code.co_name]
        traceback = traceback.tb_next
    return found


def line_of(record: dict[str, Any]) -> bytes:
    """Return a record as a line that fits into the pipe: the oldest entries are left out."""
    entries = record["entries"]
    while True:
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        if len(line) <= MOST_BYTES or not entries:
            return line
        entries = entries[len(entries) // 4 + 1 :]
        record = {**record, "entries": entries}


def nccl_ras(environ: Mapping[str, str] = os.environ) -> str:
    """Return the errors and warnings that NCCL's RAS service reports; empty: none, or it does not answer.

    The protocol of ``ncclras`` (``src/ras/client.cc``): lines, and the answer to STATUS ends the connection.
    """
    import socket

    torch = sys.modules.get("torch")
    version = torch.cuda.nccl.version() if torch is not None else ()
    if tuple(version) < RAS_SINCE or environ.get("NCCL_RAS_ENABLE") == "0":
        return ""
    host, _, port = environ.get("NCCL_RAS_ADDR", RAS_ADDRESS).rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=RAS_SECONDS) as ras:
            for request, answer in ((b"CLIENT PROTOCOL 2\n", b"SERVER PROTOCOL "), (b"TIMEOUT 1\n", b"OK")):
                ras.sendall(request)
                if not ras.recv(1024).upper().startswith(answer):
                    return ""
            ras.sendall(b"STATUS\n")
            text, until = b"", time.monotonic() + 2 * RAS_SECONDS
            while len(text) < MOST_BYTES and time.monotonic() < until and (more := ras.recv(4096)):
                text += more
    except (OSError, ValueError):
        return ""
    return ras_findings(text.decode(errors="replace"))


def ras_findings(text: str) -> str:
    """Return what follows the heading ``Errors`` of RAS' status, without headings and empty lines."""
    _, _, found = text.partition("\nErrors\n")
    lines = (line.rstrip() for line in found.splitlines())
    kept = [line for line in lines if line and line != "Warnings" and set(line) != {"="}]
    return "\n".join(kept)[:4000]
