"""``horovod.run`` by ``ringleader.run``: keywords, honored or told why they change nothing, and errors.

Names and meanings are Horovod's. A call is Horovod's where it has keywords that ``ringleader.run`` has not,
in a process in which ``horovod`` stands for ``ringleader``, and by Horovod's path, ``ringleader.runner.run``.
What it shares with ``horovodrun`` (`ringleader.runner.job_request`) is here: how a job is elastic, variables.
"""

from __future__ import annotations

import inspect
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ringleader.errors import RankError, RequestError
from ringleader.plan.elastic_options import RESET_LIMIT, ElasticOptions
from ringleader.plan.host_list import parse_hostfile
from ringleader.plan.job import Ssh
from ringleader.render.rank_environment import OF_THE_COMMAND_LINE

P = ParamSpec("P")
R = TypeVar("R")
SYNONYMS = {
    "np": "num_proc",
    "min_np": "min_num_proc",
    "max_np": "max_num_proc",
    "network_interface": "network_interfaces",
}
"""Keyword → the one that means the same, and counts where both are given."""
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
    "verbose": "errors are always printed in full",
    "use_gloo": "MPI and shared memory carry what Gloo would",
}
"""Keyword → why it changes nothing here."""
_OWN_NAMES = {
    "func": "function",
    "num_proc": "np",
    "output_filename": "output_dir",
    "executable": "python",
    "start_timeout": "start_timeout",
}
"""Keyword → that of ``ringleader.run``, for those that go there as they are."""
NAMES = frozenset(
    (
        *(*IGNORED, *SYNONYMS, *SYNONYMS.values(), *_OWN_NAMES, "slots", "reset_limit", "cooldown_range"),
        *("hostfile", "host_discovery_script", "ssh_port", "ssh_identity_file", "use_mpi", "mpi_args"),
    )
)
"""All that `translate` knows."""

START_TIMEOUT, ELASTIC_TIMEOUT = "HOROVOD_START_TIMEOUT", "HOROVOD_ELASTIC_TIMEOUT"
"""Seconds for all ranks to start, and for hosts to come, where no option says so."""
SHORTEST_STAY, LONGEST_STAY = 1, 3600
"""Seconds that ``--blacklist-cooldown-range`` may begin and end with."""
DISCOVERY_SECONDS = 1.0
"""Between two looks at the hosts that a script finds."""
_CONSTANTS = "ringleader.runner.settings"
"""Module whose seconds scripts may change; one that nobody has imported is as it was written."""
ACCEPT_NEW = f"{OF_THE_COMMAND_LINE}RUN_ACCEPT_NEW_HOST_KEYS"
"""A default of ``ringleader run`` that counts here too; Horovod itself verifies no host's key."""
_YES, _NO = ("1", "true", "t", "yes", "y", "on"), ("0", "false", "f", "no", "n", "off")
"""What ``ringleader run`` takes for a flag in a variable."""
RESET_LIMIT_EXCEEDED_MESSAGE = (
    "Horovod was shutdown because number of resets during elastic job exceeded limit: {}"
)
DETECTED = "Horovod detected that one or more processes exited with non-zero status"
"""What scripts look for where a rank has failed."""


class WrongOptionError(RequestError, ValueError):
    """Options or keywords that cannot be meant, or cannot be had; Horovod's scripts know a ValueError."""


def elastic_failure_text(reason: str, limit: int | None) -> str:
    """Return what Horovod says where an elastic job has failed, and why."""
    if limit is not None and reason.endswith(RESET_LIMIT):
        return RESET_LIMIT_EXCEEDED_MESSAGE.format(limit)
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
    wanted = {SYNONYMS[name]: value for name, value in wanted.items() if name in SYNONYMS} | wanted
    wanted.setdefault("num_proc", 1)
    native |= {"as_horovod": True, "all_gpus": native.get("all_gpus", True)}
    native.setdefault("share_gpus", True)  # as many ranks as asked for, however many GPUs there are
    elastic = elastic_options(wanted, environ)
    _warn_of_unused(wanted, elastic)
    if elastic is not None:
        native["elastic"] = elastic
    if not ({"hostfile", "host_discovery_script"} & wanted.keys() or native.get("hosts")):
        native.setdefault("oversubscribe", True)  # as many ranks as asked for, however many cores there are
    if "hostfile" in wanted:
        native["hosts"] = _hosts_of(Path(wanted["hostfile"]))
    if native.get("ssh") is None:
        native["ssh"] = Ssh(
            port=wanted.get("ssh_port"),
            identity=str(wanted["ssh_identity_file"]) if "ssh_identity_file" in wanted else None,
            accept_new=accepts_new_host_keys(environ),
        )
    if "mpi_args" in wanted:
        native["mpirun_args"] = mpirun_words(wanted["mpi_args"])
    if native.get("start_timeout", wanted.get("start_timeout")) is None:
        wanted["start_timeout"] = seconds_of(environ, START_TIMEOUT)
    if interfaces := wanted.get("network_interfaces"):
        native["network_interface"] = interfaces if isinstance(interfaces, str) else ",".join(interfaces)
    return native | {own: wanted[name] for name, own in _OWN_NAMES.items() if wanted.get(name) is not None}


def _warn_of_unused(wanted: Mapping[str, Any], elastic: ElasticOptions | None) -> None:
    told = [f"{name} changes nothing here: {why}" for name, why in IGNORED.items() if wanted.get(name)]
    how = [name for name in ("slots", "reset_limit", "cooldown_range") if name in wanted]
    if how and elastic is None:
        why = "without min_num_proc or host_discovery_script the job is not elastic"
        told.insert(0, f"{', '.join(how)}: nothing changes here: {why}")
    for text in told:
        warnings.warn(text, UserWarning, stacklevel=4)


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


def seconds_of(environ: Mapping[str, str], name: str) -> float | None:
    """Return what a variable says; ``None``: nothing. WrongOptionError for what is not a number."""
    text = environ.get(name, "")
    try:
        return float(text) if text else None
    except ValueError:
        raise WrongOptionError(f"{text!r} is not a number of seconds", where=name) from None


def _check(wanted: Mapping[str, Any], native: Mapping[str, Any]) -> None:
    if wanted.get("np", wanted.get("num_proc")) != wanted.get("num_proc", wanted.get("np")):
        raise ValueError(f"np={wanted['np']} and num_proc={wanted['num_proc']} contradict each other")
    if wanted.get("use_gloo") and wanted.get("use_mpi"):
        raise ValueError("use_gloo and use_mpi are both set: give one of them, or none")
    if wanted.get("hostfile") and native.get("hosts"):
        raise ValueError("hosts and hostfile are both set: give one of them")
    if "ssh" in native and ("ssh_port" in wanted or "ssh_identity_file" in wanted):
        raise ValueError("ssh already says how hosts are reached: leave ssh_port and ssh_identity_file out")
    if wanted.get("host_discovery_script") and (wanted.get("hostfile") or native.get("hosts")):
        raise ValueError("host_discovery_script already finds the hosts: leave hosts and hostfile out")


def elastic_options(given: Mapping[str, Any], environ: Mapping[str, str]) -> ElasticOptions | None:
    """Return how a job may change; ``None``: not at all. RequestError for what cannot be meant.

    ``given``: Horovod's options, of which those of elastic jobs count; ``None`` is as if it were not given. A
    job is elastic with a least number of ranks or a script that finds hosts, needs as many ranks as are asked
    for unless told otherwise, and a rank that fails takes its host out.
    """
    np, least, most = (given.get(name) for name in ("num_proc", "min_num_proc", "max_num_proc"))
    script = given.get("host_discovery_script")
    if least is None and script is None and most in (None, np):
        return None
    constants = sys.modules.get(_CONSTANTS)
    timeout = given.get("elastic_timeout")
    if timeout is None:
        timeout = seconds_of(environ, ELASTIC_TIMEOUT)
    usual = getattr(constants, "ELASTIC_TIMEOUT_SECS", ElasticOptions.timeout)
    looks = getattr(constants, "DISCOVER_HOSTS_FREQUENCY_SECS", DISCOVERY_SECONDS)
    return ElasticOptions(
        min_np=least or np or 1,
        max_np=most,
        discovery_script=None if script is None else str(script),
        discovery_seconds=None if looks == DISCOVERY_SECONDS else looks,
        slots=given.get("slots"),
        exclude_hosts=True,
        reset_limit=given.get("reset_limit"),
        cooldown=_cooldown(given.get("cooldown_range")),
        timeout=usual if timeout is None else timeout,
    )


def _cooldown(limits: Sequence[float] | None) -> tuple[float, float] | None:
    if not limits:
        return None
    shortest, longest = limits
    if not SHORTEST_STAY <= shortest <= longest <= LONGEST_STAY:
        hint = f"two numbers of seconds from {SHORTEST_STAY} to {LONGEST_STAY}, the shorter one first"
        raise RequestError(f"{shortest:g} {longest:g}", where="--blacklist-cooldown-range", hint=hint)
    return float(shortest), float(longest)


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
    """Return Horovod's error for one that reports a rank's failure."""
    told = error if isinstance(error, RankError) else error.__cause__
    code, rank = getattr(told, "exit_code", None), getattr(told, "rank", None)
    if code is None:
        return None
    return RuntimeError(failure_text(code=code, rank=rank, mpi=mpi))
