"""sshd for root, with one key pair for all containers of the image. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.images.instructions import Command, Expose, Run, Step, words, write
from ringleader.images.stage_steps import Half, Halves, Setting

if TYPE_CHECKING:
    from ringleader.images.blocks.sshd import Sshd

KEYS = "/root/.ssh"


def sshd(block: Sshd, setting: Setting) -> Halves:
    """Return sshd on the recipe's port, a client that asks nothing, and perhaps the key pair."""
    steps: tuple[Step, ...] = (_asks_nothing(block.port),)
    if block.keys == "in-image":
        steps += (_key_pair(),)
    return Halves(
        runtime=Half(
            apt=("openssh-client", "openssh-server"),
            steps=steps,
            last=(
                Expose(port=block.port),
                Command(argv=("/usr/sbin/sshd", "-D", "-p", str(block.port))),
            ),
        )
    )


def _asks_nothing(port: int) -> Run:
    client = ("    StrictHostKeyChecking no", "    UserKnownHostsFile /dev/null", f"    Port {port}")
    return Run(
        commands=(
            "mkdir -p /var/run/sshd",
            words("sed", "-i", f"s/^#*Port .*/Port {port}/", "/etc/ssh/sshd_config"),
            words("sed", "-i", "/StrictHostKeyChecking/d", "/etc/ssh/ssh_config"),
            write("/etc/ssh/ssh_config", client, append=True),
        ),
        why="Containers reach each other on this port, and none is asked who it is.",
    )


def _key_pair() -> Run:
    return Run(
        commands=(
            words("install", "-d", "-m", "0700", KEYS),
            words("ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", f"{KEYS}/id_rsa"),
            words("cp", f"{KEYS}/id_rsa.pub", f"{KEYS}/authorized_keys"),
        ),
        why="Password-less ssh by a key in the image: whoever has the image may enter all of its containers.",
    )
