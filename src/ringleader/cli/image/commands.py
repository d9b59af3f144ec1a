"""``ringleader image``: images for training, from a short recipe."""

from __future__ import annotations

from ringleader.cli.lazy_group import LazyGroup, Table

COMMANDS: Table = {
    "list": ("ringleader.cli.image.list", "The profiles: base, frameworks, CUDA."),
    "render": ("ringleader.cli.image.render", "Print a recipe as a Dockerfile or an Apptainer definition."),
    "check": ("ringleader.cli.image.check", "Say what of a recipe does not fit together, and what does."),
    "solve": ("ringleader.cli.image.solve", "Propose versions that fit: torch=2.8 gpu=h100."),
    "lock": ("ringleader.cli.image.lock", "Write a recipe's Python packages down with versions and hashes."),
    "build": ("ringleader.cli.image.build", "Build an image with buildah, podman or docker; test it."),
}


command = LazyGroup(
    "image",
    table=COMMANDS,
    help="Images in which framework, CUDA, MPI, RDMA user space and sshd fit together, from a short recipe.",
)
