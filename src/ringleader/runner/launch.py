"""The command ``horovodrun``, commands on ranks with Horovod's settings, and which MPI there is.

Horovod's paths are ``horovod.runner`` with ``launch``, ``gloo_run`` and ``mpi_run``; names and meanings are
Horovod's. What the options become here is decided in `job_request`.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ringleader import __version__
from ringleader.adapters.util import (
    ccl_built,
    ddl_built,
    extension_available,
    gloo_built,
    mpi_built,
    nccl_built,
)
from ringleader.errors import RingleaderError
from ringleader.horovod_run import IGNORED, NAMES, elastic_failure_text, failure_text
from ringleader.plan.job import Family, check
from ringleader.runner.job_request import job_request, same_command
from ringleader.runner.option_table import OPTIONS, HorovodrunOptions, options_of
from ringleader.text_files import read_text

if TYPE_CHECKING:
    from ringleader.launch.outcome import Outcome

__all__ = [
    "check_build",
    "gloo_built",
    "gloo_run",
    "is_intel_mpi",
    "is_mpich",
    "is_open_mpi",
    "is_spectrum_mpi",
    "mpi_available",
    "mpi_built",
    "mpi_run",
    "nccl_built",
    "parse_args",
    "run_commandline",
]

FRAMEWORKS = {
    "TensorFlow": "tensorflow",
    "PyTorch": "torch",
    "MXNet": "mxnet",
    "Keras": "keras",
    "JAX": "jax",
}
_OF_RUN = (NAMES - {*IGNORED, "num_proc"}) | {"hosts", "use_gloo"}
"""Options that are keywords of `run` too."""


def parse_args() -> Namespace:
    """Return the options of this process's command line as attributes, by Horovod's names.

    SystemExit for words that are no options, and behind ``--help``, ``--version`` and ``--check-build``;
    ValueError for values that cannot be meant.
    """
    from ringleader.runner.command_line import parse

    args = parse(sys.argv[1:])
    if args.check_build:
        check_build(args.verbose)
    return args


def check_build(verbose: bool = False) -> NoReturn:
    """Print which frameworks, MPIs and transports are there, and leave.

    The lists and their words are Horovod's, which scripts look for: ``[X] PyTorch``.
    """
    mpi = mpi_built() and mpi_available()
    lists = {
        "Available Frameworks": {name: extension_available(module) for name, module in FRAMEWORKS.items()},
        "Available Controllers": {"MPI": mpi, "Gloo": gloo_built()},
        "Available Tensor Operations": {
            "NCCL": bool(nccl_built()),
            "DDL": ddl_built(),
            "CCL": ccl_built(),
            "MPI": mpi,
            "Gloo": gloo_built(),
        },
    }
    lines = [f"Horovod v{__version__}:"]
    for title, entries in lists.items():
        lines += ["", f"{title}:"]
        lines += [f"    [{'X' if there else ' '}] {name}" for name, there in entries.items()]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.exit(0)


def run_commandline() -> None:
    """Run this process's command line and leave with the job's exit code."""
    from ringleader.cli.main import run_guarded

    run_guarded(_command_line)


def _command_line() -> int:
    try:
        args = parse_args()
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    for key in args.unknown_keys:
        _tell(f"{key} is nothing that horovodrun knows")
    outcome = run_command(options_of(args), environ=os.environ)
    return outcome.exit_code


def gloo_run(
    settings: Any,
    nics: Iterable[str] | None,
    env: Mapping[str, str],
    server_ip: str,
    command: Sequence[str],
) -> None:
    """Run a command to its end; RuntimeError where a rank fails. MPI starts the ranks.

    ``settings``: `ringleader.runner.settings.Settings`. ``env``: the launcher's environment. ``server_ip`` is
    not needed: ranks find the launcher by themselves.
    """
    _run_settings(settings, nics, env, command, mpi=False)


def mpi_run(
    settings: Any, nics: Iterable[str] | None, env: Mapping[str, str], command: Sequence[str]
) -> None:
    """Run a command to its end; RuntimeError where a rank fails. See `gloo_run`."""
    _run_settings(settings, nics, env, command, mpi=True)


def _run_settings(
    settings: Any, nics: Iterable[str] | None, env: Mapping[str, str], command: Sequence[str], *, mpi: bool
) -> None:
    values = vars(settings) | {"mpi_args": settings.extra_mpi_args, "nics": nics, "command": command}
    values |= {"start_timeout": None, "verbose": bool(settings.verbose)}
    timeout = settings.start_timeout
    options = options_of(Namespace(**values))
    if timeout is not None:
        options = replace(options, start_timeout=max(1, int(timeout.remaining())))
    outcome = run_command(options, environ={"PATH": os.environ.get("PATH", os.defpath)} | dict(env))
    _raise_of(outcome, mpi=mpi)


def _get_min_start_hosts(settings: Any) -> int:
    """Return how many hosts an elastic job waits for at its start: 1, as nothing is tried between two."""
    return 1


def mpi_available(env: Mapping[str, str] | None = None) -> bool:
    """Return whether there is an MPI that can start ranks: ours, or on the PATH of ``env``."""
    return _family(env) is not None


def is_open_mpi(env: Mapping[str, str] | None = None) -> bool:
    """Return whether Open MPI starts the ranks."""
    return _family(env) in (Family.OPENMPI4, Family.OPENMPI5)


def is_mpich(env: Mapping[str, str] | None = None) -> bool:
    """Return whether MPICH, or one of its family, starts the ranks."""
    return _family(env) is Family.MPICH


def is_intel_mpi(env: Mapping[str, str] | None = None) -> bool:
    """Return whether Intel MPI starts the ranks."""
    return _family(env) is Family.INTEL


def is_spectrum_mpi(env: Mapping[str, str] | None = None) -> bool:
    """Return False: IBM's MPI is not among those that are driven here."""
    return False


def _family(env: Mapping[str, str] | None) -> Family | None:
    from ringleader.launch.mpirun.mpi_discovery import find_mpi

    try:
        return find_mpi(None, environ=os.environ if env is None else env).family
    except RingleaderError:
        return None


def run_command(options: HorovodrunOptions, *, environ: Mapping[str, str]) -> Outcome:
    """Run the options' command to its end; a person at the terminal sees it.

    Raises RequestError with every fault at once, and what ``ringleader.launch.launch_job.launch`` raises.
    """
    from ringleader.cli.run.command import check_program, check_ssh_files, is_here, run_job

    request = job_request(options, environ=environ, read=read_text, current_dir=str(Path.cwd()))
    job = check(request.job)
    check_ssh_files(job)
    if is_here(job):
        check_program(job, environ)
    for note in request.notes:
        _tell(note)
    if options.verbose:
        _tell(f"the same as: {same_command(request)}")
    outcome = run_job(job, environ=environ, label=label_of(options))
    if (failure := outcome.first_failure) is not None:
        sys.stderr.write(failure_text(code=failure.code, rank=failure.rank, mpi=False))
    return outcome


def label_of(options: HorovodrunOptions) -> Callable[[int, str], bytes]:
    """Return what stands before a rank's lines: ``[0]<stdout>:``; after ``--mpi`` as mpirun writes it."""
    number = "[1,%d]<%s>:" if options.use_mpi else "[%d]<%s>:"
    if not options.prefix_output_with_timestamp:
        return lambda rank, stream: (number % (rank, stream)).encode()
    return lambda rank, stream: (time.strftime("%a %b %d %H:%M:%S %Y") + number % (rank, stream)).encode()


def _tell(text: str) -> None:
    sys.stderr.write(f"ringleader: {text}\n")


def _run(args: Any) -> list[Any] | None:
    """Run what an object of options says (`_HorovodArgs`, or what `parse_args` returns).

    With a function in ``run_func`` its results are returned, by rank; else the command is run. RuntimeError
    where a rank fails.
    """
    function = getattr(args, "run_func", None)
    options = options_of(args)
    if function is None:
        outcome = run_command(options, environ=os.environ)
        _raise_of(outcome, mpi=not options.use_gloo, reset_limit=options.reset_limit)
        return None
    from ringleader.runner import run

    same = {name: getattr(options, name) for name in OPTIONS.keys() & _OF_RUN}
    results: list[Any] = run(
        function,
        num_proc=options.num_proc or 1,
        network_interfaces=sorted(options.nics) if options.nics else None,
        executable=getattr(args, "executable", None),
        **same,
    )
    return results


_run_elastic = _run
"""Horovod's name for a job that is elastic; what the options say decides here."""


def _raise_of(outcome: Outcome, *, mpi: bool, reset_limit: int | None = None) -> None:
    """Raise RuntimeError for a job that failed, as Horovod does."""
    if outcome.exit_code and outcome.elastic is not None:
        raise RuntimeError(elastic_failure_text(outcome.reason, reset_limit))
    if outcome.exit_code:
        rank = None if outcome.first_failure is None else outcome.first_failure.rank
        raise RuntimeError(failure_text(code=outcome.exit_code, rank=rank, mpi=mpi))


if __name__ == "__main__":
    run_commandline()
