"""``horovod.run`` by ``ringleader.run``: keywords, honoured or told why they change nothing, and errors.

Names and meanings are Horovod's. A call is Horovod's where it has keywords that ``ringleader.run`` has not,
in a process in which ``horovod`` stands for ``ringleader``, and by Horovod's path, ``ringleader.runner.run``.
"""

from __future__ import annotations

import inspect
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ringleader.errors import RankError, RequestError
from ringleader.horovod_elastic import elastic_options
from ringleader.plan.elastic_options import RESET_LIMIT, ElasticOptions
from ringleader.plan.host_list import parse_hostfile
from ringleader.plan.job import Ssh
from ringleader.render.rank_environment import OF_THE_COMMAND_LINE

P = ParamSpec("P")
R = TypeVar("R")
COUNTS = ("num_proc", "np")
ORDER = (
    "num_proc",
    "min_num_proc",
    "max_num_proc",
    "slots",
    "reset_limit",
    "cooldown_range",
    "hosts",
    "hostfile",
)
"""What follows function, args and kwargs by position in Horovod."""
IGNORED = {
    "disable_cache": "nothing about hosts is kept from one job to the next",
    "verbose": "what goes wrong is always told in full",
    "use_gloo": "MPI and shared memory carry what Gloo would",
}
"""Keyword → why it changes nothing here."""
HONOURED = (
    "func",
    *COUNTS,
    *("min_num_proc", "max_num_proc", "min_np", "max_np", "slots", "reset_limit", "cooldown_range"),
    "hostfile",
    "host_discovery_script",
    "ssh_port",
    "ssh_identity_file",
    "output_filename",
    "network_interfaces",
    "network_interface",
    "executable",
    "use_mpi",
    "mpi_args",
    "start_timeout",
)
NAMES = frozenset((*IGNORED, *HONOURED))
"""All that `translate` knows."""


START_TIMEOUT = "HOROVOD_START_TIMEOUT"
ACCEPT_NEW = f"{OF_THE_COMMAND_LINE}RUN_ACCEPT_NEW_HOST_KEYS"
"""A default of ``ringleader run`` that counts here too; Horovod itself verifies no host's key."""
_YES, _NO = ("1", "true", "t", "yes", "y", "on"), ("0", "false", "f", "no", "n", "off")
"""What ``ringleader run`` takes for a flag in a variable."""
DETECTED = "Horovod detected that one or more processes exited with non-zero status"
"""What scripts look for where a rank has failed."""


class WrongOptionError(RequestError, ValueError):
    """Options or keywords that cannot be meant, or cannot be had; Horovod's scripts know a ValueError."""


def elastic_failure_text(reason: str, limit: int | None) -> str:
    """Return what Horovod says where an elastic job has failed, and why."""
    if limit is not None and reason.endswith(RESET_LIMIT):
        return f"Horovod was shutdown because number of resets during elastic job exceeded limit: {limit}"
    return f"{DETECTED}: {reason}"


def failure_text(*, code: int, rank: int | None, mpi: bool) -> str:
    """Return what Horovod says where a rank has failed first: ``mpirun failed…`` where MPI was asked for."""
    if mpi or rank is None:
        return f"mpirun failed with exit code {code}"
    return f"{DETECTED}; the first of them:\nProcess name: {rank}\nExit code: {code}\n"


def translate(given: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the keywords of ``ringleader.run`` for those of ``horovod.run``; native ones stay as they are.

    Warns of those that change nothing. `TypeError` for a keyword that neither has, `ValueError` where two
    contradict each other, RequestError for what cannot be read or cannot be had.
    """
    native = dict(given)
    wanted = {name: native.pop(name) for name in list(native) if name in NAMES}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    _check(wanted, native)
    if "func" in wanted:
        native["function"] = wanted["func"]
    counts = {wanted[name] for name in COUNTS if name in wanted}
    native["np"] = counts.pop() if counts else 1
    native |= {"as_horovod": True, "all_gpus": native.get("all_gpus", True)}
    native.setdefault("share_gpus", True)  # as many ranks as asked for, however many GPUs there are
    if (elastic := _elastic(wanted, native["np"], environ)) is not None:
        native["elastic"] = elastic
    if not ({"hostfile", "host_discovery_script"} & wanted.keys() or native.get("hosts")):
        native.setdefault("oversubscribe", True)  # as many ranks as asked for, however many cores there are
    _warn_of_ignored(wanted)
    if "hostfile" in wanted:
        native["hosts"] = _hosts_of(Path(wanted["hostfile"]))
    if native.get("ssh") is None:
        native["ssh"] = _ssh(wanted, environ)
    if "mpi_args" in wanted:
        native["mpirun_args"] = mpirun_words(wanted["mpi_args"])
    if environ.get(START_TIMEOUT) and native.get("start_timeout", wanted.get("start_timeout")) is None:
        wanted["start_timeout"] = _number(environ[START_TIMEOUT])
    interfaces = wanted.get("network_interfaces", wanted.get("network_interface"))
    if interfaces:
        native["network_interface"] = interfaces if isinstance(interfaces, str) else ",".join(interfaces)
    for name, own in (
        ("output_filename", "output_dir"),
        ("executable", "python"),
        ("start_timeout", "start_timeout"),
    ):
        if name in wanted:
            native[own] = wanted[name]
    return native


def _warn_of_ignored(wanted: Mapping[str, Any]) -> None:
    for name, why in IGNORED.items():
        if wanted.get(name):
            warnings.warn(f"{name} changes nothing here: {why}", UserWarning, stacklevel=5)


def _ssh(wanted: Mapping[str, Any], environ: Mapping[str, str]) -> Ssh:
    identity = wanted.get("ssh_identity_file")
    return Ssh(
        port=wanted.get("ssh_port"),
        identity=None if identity is None else str(identity),
        accept_new=accepts_new_host_keys(environ),
    )


def mpirun_words(text: str) -> tuple[str, ...]:
    """Return the words of ``--mpi-args``. WrongOptionError where they are none, as a shell reads them."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        hint = "write them as in a shell"
        raise WrongOptionError(f"{text!r}: {error}", where="--mpi-args", hint=hint) from None


def accepts_new_host_keys(environ: Mapping[str, str]) -> bool:
    """Return whether `ACCEPT_NEW` says so. WrongOptionError for a value that is neither yes nor no."""
    text = environ.get(ACCEPT_NEW, "").strip().lower()
    if text not in ("", *_YES, *_NO):
        raise WrongOptionError(f"{text!r} is neither 1 nor 0", where=ACCEPT_NEW)
    return text in _YES


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise WrongOptionError(f"{text!r} is not a number of seconds", where=START_TIMEOUT) from None


def _check(wanted: Mapping[str, Any], native: Mapping[str, Any]) -> None:
    if len({wanted[name] for name in COUNTS if name in wanted}) > 1:
        raise ValueError(f"np={wanted['np']} and num_proc={wanted['num_proc']} contradict each other")
    if wanted.get("use_gloo") and wanted.get("use_mpi"):
        raise ValueError("use_gloo and use_mpi are both set: give one of them, or none")
    if wanted.get("hostfile") and native.get("hosts"):
        raise ValueError("hosts and hostfile are both set: give one of them")
    if "ssh" in native and ("ssh_port" in wanted or "ssh_identity_file" in wanted):
        raise ValueError("ssh already says how hosts are reached: leave ssh_port and ssh_identity_file out")
    if wanted.get("host_discovery_script") and (wanted.get("hostfile") or native.get("hosts")):
        raise ValueError("host_discovery_script already finds the hosts: leave hosts and hostfile out")


def _elastic(wanted: Mapping[str, Any], np: int, environ: Mapping[str, str]) -> ElasticOptions | None:
    """Return how the job may change. Warns of options that say how, where it may not."""
    elastic = elastic_options(
        np=np,
        least=wanted.get("min_num_proc", wanted.get("min_np")),
        most=wanted.get("max_num_proc", wanted.get("max_np")),
        script=wanted.get("host_discovery_script"),
        slots=wanted.get("slots"),
        reset_limit=wanted.get("reset_limit"),
        cooldown=wanted.get("cooldown_range"),
        environ=environ,
    )
    how = [name for name in ("slots", "reset_limit", "cooldown_range") if name in wanted]
    if how and elastic is None:
        why = "without min_num_proc or host_discovery_script the job is not elastic"
        warnings.warn(f"{', '.join(how)}: nothing changes here: {why}", UserWarning, stacklevel=5)
    return elastic


def _hosts_of(path: Path) -> list[Any]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"the hostfile cannot be read: {error}", where=str(path))
    parsed = parse_hostfile(text, where=str(path))
    if parsed.faults:
        raise RequestError(parsed.faults)
    return list(parsed.hosts)


def accepts_horovod(run: Callable[P, R], *, always: bool = False) -> Callable[P, R]:
    """Return ``run`` that also takes Horovod's calls; others go to it unchanged, unless all are Horovod's.

    A rank that fails is a RuntimeError of such a call, whose cause is what the rank has raised.
    """
    own = inspect.signature(run).parameters

    @wraps(run)
    def call(*args: Any, **given: Any) -> R:
        given |= dict(zip(ORDER, args[3:], strict=False))
        if "start_timeout" in given and given["start_timeout"] is None:
            del given["start_timeout"]
        if not (always or alias_is_on() or any(name in NAMES and name not in own for name in given)):
            return run(*args[:3], **given)
        native = translate(given, os.environ)
        try:
            return run(*args[:3], **native)
        except RequestError as error:
            raise WrongOptionError(error.faults) from None
        except Exception as error:
            failure = _failure_of(error, mpi=not given.get("use_gloo"))
            if failure is None:
                raise
            raise failure from error

    return call


def alias_is_on() -> bool:
    """Return whether ``horovod`` stands for ``ringleader`` in this process, and something has imported it."""
    horovod = sys.modules.get("horovod")
    return horovod is not None and horovod is sys.modules.get("ringleader")


def _failure_of(error: Exception, *, mpi: bool) -> RuntimeError | None:
    """Return Horovod's error for one that tells of a rank's failure."""
    told = error if isinstance(error, RankError) else error.__cause__
    code, rank = getattr(told, "exit_code", None), getattr(told, "rank", None)
    if code is None:
        return None
    return RuntimeError(failure_text(code=code, rank=rank, mpi=mpi))
