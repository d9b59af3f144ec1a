"""The command ``ringleader``: its table of sub-commands, and how errors leave it as messages and exit codes.

`command_groups` has the groups; `interrupts` the signals that end a command.
"""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import click

from ringleader import __version__
from ringleader.cli import interrupts
from ringleader.cli.command_groups import JOB_COMMANDS, LazyGroup, Table
from ringleader.cli.option_defaults import PREFIX, Configuration, choose_file
from ringleader.errors import (
    Fault,
    OutputError,
    ReaderGoneError,
    RefusedError,
    RequestError,
    RingleaderError,
    meant,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class StandardStream(io.FileIO):
    """A standard descriptor that reports a failure once."""

    def __init__(self, fd: int, *, silent: bool) -> None:
        """``silent``: failures are not reported at all."""
        super().__init__(fd, "w", closefd=False)
        self._silent = silent
        self._failed = False

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of it, as ``write(2)`` does; raises OutputError for the first failure."""
        while not self._failed:
            try:
                written: int | None = super().write(data)
            except OSError as error:
                self._failed = True
                if not self._silent:
                    what = error.strerror or str(error)
                    gone = isinstance(error, BrokenPipeError)
                    raise (ReaderGoneError if gone else OutputError)(what) from None
                break
            if written is not None:
                return written
            # Another program on this terminal or pipe has made it non-blocking.
            select.select((), (self,), ())
        return memoryview(data).nbytes


def guard_streams() -> None:
    """Put guarded streams in place of the interpreter's own; a caller's replacements stay as they are."""
    if sys.stdout is sys.__stdout__ and sys.stdout is not None:
        sys.stdout.flush()
        sys.stdout = _guarded_stream(sys.stdout, silent=False)
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:
        sys.stderr = _guarded_stream(sys.stderr, silent=True)


def _guarded_stream(stream: io.TextIOBase | object, *, silent: bool) -> io.TextIOWrapper:
    assert isinstance(stream, io.TextIOWrapper)
    raw = StandardStream(stream.fileno(), silent=silent)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=stream.encoding,
        # A table's × and the bytes of a file's name reach every terminal in some form, whatever its locale.
        errors="surrogateescape" if stream.encoding.lower() in ("utf-8", "utf8") else "backslashreplace",
        line_buffering=silent or os.isatty(raw.fileno()),
        write_through=stream.write_through,
    )


COMMANDS: Table = {
    "run": ("run.command", "Run a command on many ranks: here, over ssh, in Slurm, on Kubernetes."),
    "lab": ("lab", "Emulate a cluster, with faults, on one machine."),
    "scale": ("scale.command", "Run one job at several sizes: speed-up, efficiency, report."),
    "bench": ("command_groups:bench", "Measure links, collectives and training steps."),
    "report": ("report", "Show, compare and serve stored runs."),
    "analyze": ("analyze", "Show where step time went, from PyTorch profiler traces."),
    "predict": ("predict", "Predict step time and efficiency for other sizes or networks."),
    "doctor": ("doctor.command", "Check hosts or an image, and explain what to fix."),
    "config": ("config", "Show which defaults are set, and where."),
    "image": ("command_groups:image", "Build container images from recipes."),
    "render": ("command_groups:render", "Print job manifests, compose files, transport settings."),
    "k8s": ("command_groups:k8s", "Kubernetes: jobs: submit, status, logs, explain, delete."),
    "operator": ("command_groups:operator", "Kubernetes: the MPIJob operator, its manifests and CRD."),
    "slurm": ("command_groups:slurm", "Slurm: jobs: status, logs, cancel."),
    "completion": ("completion", "Shell: print the completion script for bash, zsh or fish."),
}
SECTIONS = {
    "run": "Train",
    "scale": "Measure",
    "doctor": "Diagnose",
    "image": "Build",
    "k8s": "Kubernetes",
    "slurm": "Slurm",
    "completion": "Shell",
}
"""First command of each section of the help → its heading."""


ringleader = LazyGroup(
    "ringleader",
    table=COMMANDS,
    sections=SECTIONS,
    older=JOB_COMMANDS,
    help="""Train one script on many ranks, prove which transport carried the gradients, and see how far you
    are from linear scaling, and why.

    \b
      ringleader run -H node1:4,node2:4 --require rdma python train.py
    """,
    epilog="""Exit codes: 0 success; 1 a comparison failed or results are wrong; 2 invalid usage; 3 a host,
    the cluster or a check failed; 124 time limit; 128+n ended by signal n; else the code of the rank that
    failed.

    Documentation: docs/README.md, terms: docs/glossary.md, in https://github.com/ringleader/ringleader.
    """,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
    verbose = ctx.params.pop("verbose", False)
    if ctx.resilient_parsing or not (asked or verbose):
        return
    if not asked:
        raise click.UsageError("--verbose goes with --version; a command's own follows its name.", ctx)
    print(f"ringleader, version {__version__}")
    if verbose:
        from ringleader.gpu_record import lines

        print("\n".join(lines()))
    ctx.exit()


ringleader.params += [
    click.Option(
        ["--config"],
        metavar="FILE",
        expose_value=False,
        allow_from_autoenv=False,
        callback=choose_file,
        help="Read defaults from FILE (of any owner) instead of the nearest ringleader.toml.",
    ),
    click.Option(
        ["--version"], is_flag=True, expose_value=False, callback=_version, help="Show the version and exit."
    ),
    click.Option(
        ["--verbose"],
        is_flag=True,
        is_eager=True,  # known when --version is processed, in whichever order the two are written
        allow_from_autoenv=False,
        help="With --version: also show which parts were tested on GPUs.",
    ),
]


def main(argv: list[str] | None = None) -> None:
    """Run the command line."""
    run_guarded(
        lambda: ringleader.main(
            args=argv,
            prog_name="ringleader",
            standalone_mode=False,
            auto_envvar_prefix=PREFIX,
            obj=Configuration(environ=os.environ),
        )
    )


def run_guarded(command: Callable[[], object]) -> NoReturn:
    """Run a command and leave; errors become messages and exit codes, never tracebacks.

    ``command`` returns its exit code; what is not a number means 0.
    """
    open_closed_streams()
    guard_streams()
    if directory := os.environ.pop("RINGLEADER_RETURN", ""):  # in the launcher of a job on a cluster
        from ringleader.cli.returned_files import returning

        code = _guarded(lambda: returning(command, directory))
    else:
        code = _guarded(command)
    try:
        sys.stdout.flush()
    except OutputError as error:
        code = code or _told(error)
    sys.exit(code)


def _guarded(command: Callable[[], object]) -> int:
    """Return a command's exit code, its errors told on standard error."""
    try:
        with interrupts.raised():
            code = command()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        return _told(RequestError((fault_of(error),)))
    except (click.Abort, KeyboardInterrupt) as error:
        number = interrupts.number_of(error)
        print(f"ringleader: stopped by {signal.Signals(number).name}", file=sys.stderr)
        return 128 + number
    except RingleaderError as error:
        return _told(error)
    except OSError as error:
        return _told(refusal_of(error))
    except UnicodeEncodeError as error:
        # Words of the command line that are not text; what may be any bytes (COMMAND, paths) is not encoded.
        word = str(error.object)[:80].encode("utf-8", errors="backslashreplace").decode()
        return _told(RequestError("is not text (UTF-8)", where=word, hint="write another name"))
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        return _told(refusal_of(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))))
    return code if isinstance(code, int) else 0


def fault_of(error: click.ClickException) -> Fault:
    """Return what click says of a command line, in our words."""
    from ringleader.cli.typed_command import nearest_options, spelling  # loaded for a wrong word alone

    context = getattr(error, "ctx", None)
    hint = f"{context.command_path} --help" if context is not None else ""
    parameter = getattr(error, "param", None)
    if isinstance(error, click.NoSuchOption):
        near = nearest_options(context.command, error.option_name) if context is not None else []
        return Fault(where=error.option_name, what="no such option", hint=f"{meant(near)} {hint}".strip())
    if isinstance(error, click.BadOptionUsage):
        what = error.message.rstrip(".").removeprefix(f"Option {error.option_name!r} ")
        return Fault(where=error.option_name, what=what, hint=hint)
    if isinstance(error, click.MissingParameter) and parameter is not None and context is not None:
        is_argument = isinstance(parameter, click.Argument)
        name = parameter.make_metavar(context).strip("[].…") if is_argument else spelling(parameter)
        return Fault(where=name, what="is missing", hint=hint)
    if isinstance(error, click.BadParameter) and parameter is not None:
        return Fault(where=spelling(parameter), what=error.message.rstrip("."), hint=hint)
    return Fault(where="", what=error.format_message().rstrip("."), hint=hint)


def _told(error: RingleaderError) -> int:
    for fault in error.faults:
        print(f"ringleader: {fault}", file=sys.stderr)
    return error.exit_code


_HINTS = {
    errno.EAGAIN: "a limit on processes and threads: see `ulimit -u` and the pids limit of the container",
    errno.EMFILE: "raise the limit on open files: ulimit -n",
    errno.ENOSPC: "make room there",
    errno.EROFS: "that file system is read-only",
}


def refusal_of(error: OSError) -> RefusedError:
    """Return what the system refused, where no command has better words for it."""
    what = error.strerror or str(error) or type(error).__name__
    try:
        os.getcwd()  # noqa: PTH109
    except OSError:
        hint = "cd to a directory that exists"
        return RefusedError("it has been deleted", where="the working directory", hint=hint)
    where = str(error.filename) if error.filename is not None else "this machine"
    return RefusedError(what, where=where, hint=_HINTS.get(error.errno or 0, ""))


def open_closed_streams() -> None:
    """Open /dev/null as each standard stream that our caller closed (``<&-``, ``>&-``).

    Otherwise a pipe or a connection of ours would get that number and be written to as if it was the stream.
    """
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number: fd
            setattr(sys, name, open(fd, mode, closefd=False))  # noqa: SIM115
