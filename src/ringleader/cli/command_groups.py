"""The groups of commands: bench, image, operator, render; each command is imported when it is called.

`main` has the commands that are in none.
"""

from __future__ import annotations

from ringleader.cli.lazy_group import LazyGroup

_COLLECTIVES = "ringleader.cli.bench.collectives"

bench = LazyGroup(
    "bench",
    table={
        "p2p": ("ringleader.cli.bench.p2p", "Latency and bandwidth between pairs of hosts or ranks."),
        "allreduce": (f"{_COLLECTIVES}:allreduce", "Time and bandwidth of allreduce, by size."),
        "allgather": (f"{_COLLECTIVES}:allgather", "Time and bandwidth of allgather."),
        "reducescatter": (f"{_COLLECTIVES}:reducescatter", "Time and bandwidth of reducescatter."),
        "broadcast": (f"{_COLLECTIVES}:broadcast", "Time and bandwidth of broadcast."),
        "alltoall": (f"{_COLLECTIVES}:alltoall", "Time and bandwidth of alltoall."),
        "sendrecv": (f"{_COLLECTIVES}:sendrecv", "Time and bandwidth of a ring of sends and receives."),
        "train": (
            "ringleader.cli.bench.train",
            "Training steps: what coupling costs, and where a step goes.",
        ),
    },
    help="Measure between ranks. Results are kept in runs/NAME, for `ringleader report` and `predict`.",
)

image = LazyGroup(
    "image",
    table={
        "list": ("ringleader.cli.image.list", "The profiles: base, frameworks, CUDA."),
        "render": (
            "ringleader.cli.image.render",
            "Print a recipe as a Dockerfile or an Apptainer definition.",
        ),
        "check": (
            "ringleader.cli.image.check",
            "Say what of a recipe does not fit together, and what does.",
        ),
        "solve": ("ringleader.cli.image.solve", "Propose versions that fit: torch=2.8 gpu=h100."),
        "lock": (
            "ringleader.cli.image.lock",
            "Write a recipe's Python packages down with versions and hashes.",
        ),
        "build": ("ringleader.cli.image.build", "Build an image with buildah, podman or docker; test it."),
    },
    help="Images in which framework, CUDA, MPI, RDMA user space and sshd fit together, from a short recipe.",
)

operator = LazyGroup(
    "operator",
    table={
        "crd": (
            "ringleader.cli.operator.manifests:crd_command",
            "Print the CustomResourceDefinition of MPIJob.",
        ),
        "manifests": (
            "ringleader.cli.operator.manifests",
            "Print the objects that run the operator; nothing is sent.",
        ),
        "run": ("ringleader.cli.operator.run", "Run the operator until SIGTERM or Ctrl-C."),
    },
    help="The MPIJob operator and what a cluster needs for it.",
)

render = LazyGroup(
    "render",
    table={
        "pods": ("ringleader.cli.render.pods", "A job as plain Pods, without an operator; or one Pod alone."),
        "mpijob": ("ringleader.cli.render.mpijob", "MPIJobs: made of options, or read from files."),
        "compose": (
            "ringleader.cli.render.compose",
            "An application of mpihead and mpinode containers.",
        ),
        "env": (
            "ringleader.cli.render.topology:env_command",
            "Variables for transports that fit a host, with their reasons.",
        ),
        "topology": (
            "ringleader.cli.render.topology",
            "Distances of a host's GPUs and NICs: table, JSON, drawing.",
        ),
    },
    help="Print what would be sent to a cluster, or what fits a host. Nothing is sent.",
)
