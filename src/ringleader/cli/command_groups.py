"""Groups of commands: bench, image, k8s, operator, render, slurm; `main` has the commands that are in none.

Each command is imported only when it is called, so that ``--help`` is fast.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from ringleader.cli import interrupts
from ringleader.errors import RequestError, meant, nearest

Table = Mapping[str, tuple[str, str]]
"""Sub-command → (module of ``ringleader.cli`` with a click command ``command``, or ``module:name``; help)."""


class HelpFormatter(click.HelpFormatter):
    """Headings of the help are bold on a terminal."""

    def write_heading(self, heading: str) -> None:
        """Write a heading."""
        if sys.stdout.isatty():
            from ringleader.cli.output import is_colored  # most helps do without

            heading = f"\x1b[1m{heading}\x1b[0m" if is_colored() else heading
        super().write_heading(heading)


class Context(click.Context):
    """A context whose help is written by our formatter."""

    formatter_class = HelpFormatter


class Group(click.Group):
    """A group of commands that says which one was meant."""

    context_class = Context

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names. RequestError with the likeliest where none has it."""
        word, names = args[0], self.list_commands(ctx)
        if ctx.resilient_parsing or word.startswith("-") or self.get_command(ctx, word) is not None:
            return super().resolve_command(ctx, args)
        near = nearest(word, names, cutoff=0.5)
        near += [one for one in names if word and one.startswith(word) and one not in near]
        hint = f"{meant(near)} {ctx.command_path} --help lists them".lstrip()
        raise RequestError("no such command", where=word or "COMMAND", hint=hint)


class LazyGroup(Group):
    """A group that lists its commands without importing them, so that ``--help`` is fast."""

    def __init__(
        self,
        name: str,
        *,
        table: Table,
        sections: Mapping[str, str] | None = None,
        older: Table | None = None,
        **attributes: Any,
    ) -> None:
        """``table``: the commands in order; ``sections``: first command of each section → its heading.

        ``older``: former names of commands, which work and are not listed.
        """
        super().__init__(name, **attributes)
        self._table = table
        self._sections = sections or {}
        self.older = older or {}
        """Former names of commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table: the order in which a user meets them."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one command that was asked for."""
        place = self._table.get(cmd_name) or self.older.get(cmd_name)
        if place is None:
            return None
        with interrupts.held():
            module, _, name = place[0].partition(":")
            command = getattr(import_module(f"ringleader.cli.{module}"), name or "command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands, section by section."""
        heading, width = "Commands", max(map(len, self._table))
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, (_, line) in self._table.items():
            heading = self._sections.get(name, heading)
            line = line.removeprefix(f"{heading}: ")
            sections.setdefault(heading, []).append((name.ljust(width), line[:1].upper() + line[1:]))
        for heading, lines in sections.items():
            with formatter.section(heading):
                formatter.write_dl(lines)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command, without importing any."""
        names = [
            CompletionItem(name, help=help_)
            for name, (_, help_) in self._table.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


_COLLECTIVES, _VERSIONS = "bench.collectives", "image.versions"

bench = LazyGroup(
    "bench",
    table={
        "p2p": ("bench.p2p", "Latency and bandwidth between pairs of hosts or ranks."),
        "allreduce": (f"{_COLLECTIVES}:allreduce", "Time and bandwidth of allreduce, by size."),
        "allgather": (f"{_COLLECTIVES}:allgather", "Time and bandwidth of allgather."),
        "reducescatter": (f"{_COLLECTIVES}:reducescatter", "Time and bandwidth of reducescatter."),
        "broadcast": (f"{_COLLECTIVES}:broadcast", "Time and bandwidth of broadcast."),
        "alltoall": (f"{_COLLECTIVES}:alltoall", "Time and bandwidth of alltoall."),
        "sendrecv": (f"{_COLLECTIVES}:sendrecv", "Time and bandwidth of a ring of sends and receives."),
        "train": ("bench.train", "Training speed, and where the step time goes."),
    },
    help="Measure communication and training. Runs are stored in runs/NAME for `report` and `predict`.",
)

image = LazyGroup(
    "image",
    table={
        "list": (f"{_VERSIONS}:list_command", "List built-in recipes (profiles)."),
        "render": (
            "image.render:render_command",
            "Print a recipe as a Dockerfile or an Apptainer definition.",
        ),
        "check": (f"{_VERSIONS}:check_command", "Check whether the parts of a recipe fit together."),
        "solve": (f"{_VERSIONS}:solve_command", "Propose versions that fit together: torch=2.8 gpu=h100."),
        "lock": (
            "image.render:lock_command",
            "Lock a recipe's Python packages: versions and hashes.",
        ),
        "build": ("image.build", "Build and test an image with buildah, podman or docker."),
        "sign": ("image.sign:sign_command", "Sign a pushed image with a local key, in cosign's format."),
        "verify": ("image.sign:verify_command", "Verify the output of `image sign` with a public key."),
    },
    help="""Build images from short recipes, with compatible framework, CUDA, MPI and RDMA library versions.

    docs/reference/images.md lists the keys of a recipe.
    """,
)

operator = LazyGroup(
    "operator",
    table={
        "crd": ("operator:crd_command", "Print the CustomResourceDefinition of MPIJob."),
        "manifests": (
            "operator:manifests_command",
            "Print the objects that run the operator.",
        ),
        "run": ("operator:run_command", "Run the operator until SIGTERM or Ctrl-C."),
    },
    help="The MPIJob operator, and the objects that a cluster needs for it.",
)

_JOBS = "kubernetes.job_commands"
JOB_COMMANDS: Table = {
    "submit": ("kubernetes.run_job", "Submit a job and follow it to its end."),
    "status": (f"{_JOBS}:status_command", "Show the jobs of a namespace and their states."),
    "logs": (f"{_JOBS}:logs_command", "Show the log of a job's launcher or of one of its workers."),
    "explain": (f"{_JOBS}:explain_command", "Explain why a job isn't running, or why it failed."),
    "delete": (f"{_JOBS}:delete_command", "Delete jobs and everything that belongs to them."),
}
k8s = LazyGroup(
    "k8s",
    table=JOB_COMMANDS,
    help="""Jobs on Kubernetes. `ringleader run --on kubernetes` also submits a job and follows it.

    A job has workers, Pods in which the ranks run, and a launcher, the Pod that starts them.
    """,
)

_SLURM = "slurm.job_commands"
slurm = LazyGroup(
    "slurm",
    table={
        "status": (f"{_SLURM}:status_command", "Show your Slurm jobs and why they are waiting."),
        "logs": (f"{_SLURM}:logs_command", "Show the output of a job."),
        "cancel": (f"{_SLURM}:cancel_command", "Cancel jobs."),
    },
    help="Jobs in Slurm. `ringleader run --on slurm` submits a job and follows it.",
)

render = LazyGroup(
    "render",
    table={
        "pods": (
            "render.kubernetes:pods_command",
            "Print a job as plain Pods for clusters without an operator, or as one Pod.",
        ),
        "mpijob": ("render.kubernetes:mpijob_command", "Print MPIJobs made from options or read from files."),
        "trainjob": (
            "render.kubernetes:trainjob_command",
            "Print TrainJobs of Kubeflow Trainer made from options or MPIJobs.",
        ),
        "compose": ("render.compose", "Make a compose application of mpihead and mpinode containers."),
        "env": (
            "render.topology:env_command",
            "Print transport variables that fit a host, with reasons.",
        ),
        "topology": ("render.topology", "Show the distances between a host's GPUs and NICs."),
    },
    help="Print what would be sent to a cluster, or what fits a host; nothing is sent.",
)
