"""``ringleader.run``: call a Python function on many ranks and get their results in order."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

import cloudpickle

from ringleader.errors import Fault, RankError, RequestError, StoppedError, refuse
from ringleader.horovod_run import accepts_horovod
from ringleader.launch.launch_job import launch
from ringleader.launch.outcome import Listener, Outcome, RankEnd
from ringleader.launch.rank_output import PrefixedLines, StandardStreams
from ringleader.plan.elastic_options import ElasticOptions
from ringleader.plan.host_list import parse_host_list
from ringleader.plan.job import Host, Job, Placement, Ssh, Sync, faults_of

R = TypeVar("R")


class RemoteTraceback(Exception):  # noqa: N818 - it carries the words of an error and is none itself
    """The traceback of a rank's exception, as the cause of that exception here."""

    def __init__(self, text: str, rank: int, exit_code: int) -> None:
        """Keep whose it is."""
        super().__init__(text)
        self.rank, self.exit_code = rank, exit_code

    def __reduce__(self) -> Any:
        return type(self), (self.args[0], self.rank, self.exit_code)

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Printer:
    """Prints the ranks' lines on our own standard streams, ``[rank] `` in front."""

    def __init__(self, *, size: int, prefix: bool = True) -> None:
        """``size`` decides how wide a prefix is."""
        self._outlets = StandardStreams(sys.stdout, sys.stderr)
        self._lines = PrefixedLines(self._outlets.stdout, self._outlets.stderr, size=size, prefix=prefix)

    def output(self, rank: int, stream: str, line: bytes) -> None:
        """Print a line."""
        self._lines.line(rank, stream, line)

    def report(self, rank: int, message: dict[str, Any]) -> None:
        """Messages of ``ringleader.progress`` are for ``ringleader scale``; nobody waits for them here."""

    def progress(self, text: str) -> None:
        """Silent: a program that calls us has its own way to show progress."""

    def warning(self, text: str) -> None:
        """Print a warning to standard error."""
        self._lines.finish()
        self._outlets.stderr.put(f"ringleader: {text}\n".encode(errors="replace"))

    def flush(self) -> None:
        """Print what came."""
        self._lines.flush()

    def waiting(self) -> int:
        """Return how many bytes nobody has taken yet."""
        return self._outlets.waiting

    def finish(self) -> None:
        """End an unfinished line, and say what of the ranks' output was lost."""
        self._lines.finish()
        for text in self._outlets.losses():
            self.warning(text)
        self._outlets.close()


_SAME = {part.name for part in fields(Job)} - {"hosts", "ssh", "placement", "env", "require", "sync"}
"""Keywords of `run` that are fields of the job as they are."""


@accepts_horovod
def run(
    function: Callable[..., R],
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    np: int | None = None,
    hosts: str | Iterable[str | Host] | None = None,
    mpi: str | None = None,
    ssh: Ssh | None = None,
    placement: Placement | str = Placement.SLOT,
    oversubscribe: bool = False,
    share_gpus: bool = False,
    all_gpus: bool = True,
    bind: str = "auto",
    threads: int | None = None,
    network_interface: str | None = None,
    master_port: int | None = None,
    env: Mapping[str, str] | None = None,
    output_dir: str | None = None,
    quiet: bool = False,
    prefix_output: bool = True,
    timeout: float | None = None,
    hang_seconds: float | None = None,
    start_timeout: float = 60.0,
    grace: float = 30.0,
    lost_after: float = 10.0,
    workdir: str = "",
    sync: bool | Sync = False,
    check: str | None = None,
    spare_hosts: int = 0,
    kernel_log: str | None = None,
    python: str | None = None,
    uncoupled: bool = False,
    consistency_check: str | None = None,
    recycled_results: int | None = None,
    elastic: ElasticOptions | None = None,
    as_horovod: bool = False,
    transport_settings: bool = True,
    require: str | Iterable[str] = (),
    mpirun_args: Iterable[str] = (),
    listener: Listener | None = None,
) -> list[R]:
    """Call ``function(*args, **kwargs)`` on ``np`` ranks; return what each returned, in rank order.

    ``hosts`` is ``"h1:2,h2:2"`` or a list of such words or ``Host``s; without it the ranks run here. The
    other options are those of ``ringleader run``; see ``ringleader.plan.job.Job``. ``sync=True`` sends the
    working directory, from which the ranks import modules, to every host. ``check="quick"`` or ``"active"``
    checks the hosts first and leaves out those that fail, or refuses the job. Function, arguments and
    results travel pickled (cloudpickle: lambdas and functions of ``__main__`` work). The keywords of
    ``horovod.run`` are understood too, and then errors are Horovod's: see ``ringleader.horovod_run``.

    The exception of the rank that failed first is raised here again, with the rank's traceback as its cause.
    Raises RankError where a rank ended otherwise (a signal, ``sys.exit``, a time-out, a result that cannot
    be pickled) or another wire than ``require`` names carried the bytes, RequestError for a wrong request,
    RefusedError and its family where hosts or MPI refuse. A signal that arrives meanwhile stops the ranks
    and then does to the caller what it always does.
    """
    asked = {name: value for name, value in locals().items() if name in _SAME}
    parsed, faults = _hosts(hosts)
    payload = _package(function, tuple(args), dict(kwargs or {}))
    job = Job(
        command=(python or sys.executable, "-P", "-m", "ringleader.agents.run_function"),
        hosts=parsed,
        ssh=ssh or Ssh(),
        sync=sync if isinstance(sync, Sync) else Sync(on=sync),
        placement=Placement(placement),
        env=tuple((env or {}).items()),
        require=(require,) if isinstance(require, str) else tuple(require),
        extra_mpirun_args=tuple(mpirun_args),
        faults=faults,
        **asked,
    )
    printer = Printer(size=np or 1, prefix=prefix_output)
    told = listener or printer
    try:
        if check is not None:
            from ringleader.doctor.host_gate import checked  # few jobs need it

            refuse(faults_of(job))

            def warn(_host: str, text: str) -> None:
                told.warning(text)

            job = checked(job, environ=os.environ, progress=told.progress, warn=warn)
        outcome = launch(job, environ=os.environ, listener=told, payload=payload)
    except StoppedError as error:
        signal.raise_signal(error.number)
        raise
    finally:
        printer.finish()
    return results_of(outcome)


def _hosts(hosts: str | Iterable[str | Host] | None) -> tuple[tuple[Host, ...], tuple[Fault, ...]]:
    """Return hosts and what is wrong with the words that name them."""
    if hosts is None:
        return (), ()
    words = [hosts] if isinstance(hosts, str) else list(hosts)
    found: list[Host] = []
    faults: list[Fault] = []
    for word in words:
        if isinstance(word, Host):
            found.append(word)
        else:
            parsed = parse_host_list(word, where="hosts")
            found += parsed.hosts
            faults += parsed.faults
    return tuple(found), tuple(faults)


def _package(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Return the pickled call. Raises RequestError where it cannot travel."""
    try:
        call = cloudpickle.dumps((function, args, kwargs))
    except Exception as error:
        raise RequestError(
            f"the function or its arguments cannot be pickled: {error}",
            where="function",
            hint="make what cannot travel (an open file, a lock, a connection) inside the function",
        )
    # Modules are found in the ranks where they are found here; an empty entry means the working directory.
    return pickle.dumps({"path": [os.path.abspath(entry) for entry in sys.path], "call": call})  # noqa: PTH100


def results_of(outcome: Outcome) -> list[Any]:
    """Return the ranks' results in order, or raise what the rank that failed first raised."""
    if outcome.whose == "ringleader" and outcome.exit_code > 128:
        # A signal stopped us: now that the ranks are gone, let it do to the caller what it would have done.
        signal.raise_signal(signal.Signals(outcome.exit_code - 128))
    answers = [pickle.loads(result) if result is not None else None for result in outcome.results]
    if outcome.exit_code != 0:
        first = outcome.first_failure
        answer = answers[first.rank] if first is not None else None
        if first is not None and answer is not None:
            _raise(first, answer)
        failed = None if first is None else first.rank
        raise RankError(outcome.reason, exit_code=outcome.exit_code, rank=failed)
    silent = [str(rank) for rank, answer in enumerate(answers) if answer is None or "value" not in answer]
    if silent:
        raise RankError(
            "it ended before the function returned",
            where=f"rank {', '.join(silent)}",
            exit_code=1,
            rank=int(silent[0]),
        )
    return [pickle.loads(answer["value"]) for answer in answers if answer is not None]


def _raise(end: RankEnd, answer: dict[str, Any]) -> None:
    """Raise what a rank raised."""
    where = f"rank {end.rank} on {end.host}"
    if "unpicklable" in answer:
        raise RankError(
            f"the function's result cannot be pickled: {answer['unpicklable']}",
            where=where,
            hint="return plain data: numbers, arrays, a state_dict",
            exit_code=1,
            rank=end.rank,
        )
    if "error" not in answer:
        return  # the function had returned; something else failed afterwards
    error = None
    if answer["error"] is not None:
        try:
            error = pickle.loads(answer["error"])
        except Exception:
            error = None
    traceback = RemoteTraceback(answer["traceback"], end.rank, end.code)
    if not isinstance(error, Exception):
        raise RankError(answer["words"], where=where, exit_code=1, rank=end.rank) from traceback
    error.add_note(f"raised on {where}")
    raise error from traceback
