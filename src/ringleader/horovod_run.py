"""The keywords of ``horovod.run`` as those of ``ringleader.run``: honoured, or told why they change nothing.

Names and meanings are Horovod's.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ringleader.errors import Fault, RequestError
from ringleader.host_list import parse_hostfile
from ringleader.job import Ssh

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
FIXED = "the hosts and ranks of a job do not change while it runs: {np} ranks are started"
IGNORED = {
    "min_num_proc": FIXED,
    "max_num_proc": FIXED,
    "min_np": FIXED,
    "max_np": FIXED,
    "slots": "slots of hosts are written behind their names, in hosts or the hostfile",
    "reset_limit": FIXED,
    "cooldown_range": FIXED,
    "disable_cache": "nothing about hosts is kept from one job to the next",
    "verbose": "what goes wrong is always told in full",
    "use_gloo": "MPI and shared memory carry what Gloo would",
    "mpi_args": "mpirun is given what the hosts and options of the job need",
}
"""Keyword → why it changes nothing here."""
HONOURED = (
    "func",
    *COUNTS,
    "hostfile",
    "host_discovery_script",
    "ssh_port",
    "ssh_identity_file",
    "output_filename",
    "network_interfaces",
    "network_interface",
    "executable",
    "use_mpi",
    "start_timeout",
)
NAMES = frozenset((*IGNORED, *HONOURED))
"""All that `translate` knows."""


def translate(given: Mapping[str, Any]) -> dict[str, Any]:
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
    native["np"] = counts.pop() if counts else None
    if "hostfile" not in wanted and not native.get("hosts"):
        native.setdefault("oversubscribe", True)  # as many ranks as asked for, however many cores there are
    for name, why in IGNORED.items():
        if wanted.get(name):
            text = why.format(np=native["np"] if native["np"] is not None else "the given")
            warnings.warn(f"{name} changes nothing here: {text}", UserWarning, stacklevel=4)
    if "hostfile" in wanted:
        native["hosts"] = _hosts_of(Path(wanted["hostfile"]))
    if "ssh_port" in wanted or "ssh_identity_file" in wanted:
        identity = wanted.get("ssh_identity_file")
        native["ssh"] = Ssh(port=wanted.get("ssh_port"), identity=None if identity is None else str(identity))
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


def elastic_faults(
    *, np: int | None, least: int | None, most: int | None, script: object | None
) -> list[Fault]:
    """Return what asks for a job whose size or hosts change; numbers that are all ``np`` do not."""
    faults = []
    if script is not None:
        what, hint = "the hosts of a job do not change while it runs", "name them with -H or --hostfile"
        faults.append(Fault(where="--host-discovery-script", what=what, hint=hint))
    for option, number in (("--min-np", least), ("--max-np", most)):
        if number is not None and number != np:
            what = f"{number} is another number than the {np} of -np, and the ranks of a job do not change"
            faults.append(Fault(where=option, what=what, hint="give all of them the same number"))
    return faults


def _check(wanted: Mapping[str, Any], native: Mapping[str, Any]) -> None:
    if len({wanted[name] for name in COUNTS if name in wanted}) > 1:
        raise ValueError(f"np={wanted['np']} and num_proc={wanted['num_proc']} contradict each other")
    if wanted.get("use_gloo") and wanted.get("use_mpi"):
        raise ValueError("use_gloo and use_mpi are both set: give one of them, or none")
    if wanted.get("hostfile") and native.get("hosts"):
        raise ValueError("hosts and hostfile are both set: give one of them")
    if "ssh" in native and ("ssh_port" in wanted or "ssh_identity_file" in wanted):
        raise ValueError("ssh already says how hosts are reached: leave ssh_port and ssh_identity_file out")
    if wanted.get("host_discovery_script"):
        raise RequestError(
            "the hosts of a job do not change while it runs",
            where="host_discovery_script",
            hint="name them with hosts or hostfile",
        )


def _hosts_of(path: Path) -> list[Any]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"the hostfile cannot be read: {error}", where=str(path))
    parsed = parse_hostfile(text, where=str(path))
    if parsed.faults:
        raise RequestError(parsed.faults)
    return list(parsed.hosts)


def accepts_horovod(run: Callable[P, R]) -> Callable[P, R]:
    """Return ``run`` that also takes Horovod's keywords; other calls go to it unchanged."""
    own = inspect.signature(run).parameters

    @wraps(run)
    def call(*args: Any, **given: Any) -> R:
        given |= dict(zip(ORDER, args[3:], strict=False))
        if "start_timeout" in given and given["start_timeout"] is None:
            del given["start_timeout"]
        if any(name in NAMES and name not in own for name in given):
            given = translate(given)
        return run(*args[:3], **given)

    return call
