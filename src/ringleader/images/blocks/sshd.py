"""The block sshd: its configuration, the client's, and PATH of sessions. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks.block import VENV, Block, BlockSteps, ImageContext, StageSteps
from ringleader.images.blocks.system import Account, account_of
from ringleader.images.instructions import Command, Expose, Run, shell, write
from ringleader.images.recipe import NAME, number, text

CONFIG = "/etc/ssh/sshd_config"
"""The usual place: operators start workers with ``sshd -De`` and nothing else."""
CLIENT = "/etc/ssh/ssh_config"
PROFILE = "/etc/profile.d/ringleader.sh"
"""For login shells: they set PATH anew after sshd did."""
START = ("/usr/sbin/sshd", "-De", "-f", CONFIG)
HOST_KEYS = tuple(f"/etc/ssh/ssh_host_{kind}_key" for kind in ("rsa", "ecdsa", "ed25519"))
KEY = "id_rsa"
"""The job's key in the account's ~/.ssh, of any type: operators of MPIJobs give it that name."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BIN_ORDER = ("mpi", "ucx", "libfabric", "rdma")
"""Blocks whose programs come first on PATH, in this order."""


@dataclass(frozen=True, kw_only=True)
class Sshd(Block):
    """What mpirun reaches the image's containers by.

    Keys are never part of an image; they are mounted, or made at the start.
    """

    table = "sshd"

    port: int = number(2222, least=1, most=65535)
    """Above 1023 it needs no privilege; 22 is the host's own on host networks."""
    keys: str = text(NAME, "mounted", one_of=("mounted",))
    """The job's keys are mounted: whoever had an image with a key could enter every container."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return sshd without any key, its configuration, the client's, and PATH for sessions."""
        account = account_of(image)
        path = session_path(image)
        configured = Run(
            commands=(
                shell("rm", "-f", *HOST_KEYS, *(f"{key}.pub" for key in HOST_KEYS)),
                "mkdir -p /run/sshd",
                # An account that is locked is refused even with a key; `*` is not a password, and not locked.
                *((shell("usermod", "--password", "*", "root"),) if account.is_root else ()),
                write(CONFIG, server(self, account, path)),
                write(PROFILE, (f"export PATH={path}",)),
                write(CLIENT, client(self, account)),
            ),
            why=f"Whoever connects proves the key in {account.home}/.ssh, and so does the host: "
            "one key pair for one job.",
        )
        no_host_keys = Run(
            commands=("mkdir -p /etc/ssh", shell("touch", *HOST_KEYS)),
            why="The package makes host keys where there are none, and no key may be part of an image.",
        )
        return BlockSteps(
            runtime=StageSteps(
                apt=("openssh-client", "openssh-server"),
                before=(no_host_keys,),
                steps=(configured,),
                last=(Expose(port=self.port), Command(argv=START)),
            )
        )


def session_path(image: ImageContext) -> str:
    """Return PATH as ssh's sessions get it: they see nothing of an image's variables."""
    places = [f"{VENV}/bin"]
    for table in BIN_ORDER:
        if table in image.blocks:
            places += image.blocks[table].bin_directories()
    if image.cuda:
        places.append("/usr/local/cuda/bin")
    return ":".join((*places, SYSTEM_PATH))


def server(block: Sshd, account: Account, path: str) -> tuple[str, ...]:
    """Return the lines of sshd's configuration.

    StrictModes is off as a mounted directory of keys belongs to root, whatever the account. Without PAM no
    limits of /etc/security lower the container's, locked memory above all.
    """
    keys = f"{account.home}/.ssh"
    return (
        f"Port {block.port}",
        f"HostKey {keys}/{KEY}",
        "PidFile none",
        "UsePAM no",
        "StrictModes no",
        f"AllowUsers {account.name}",
        f"PermitRootLogin {'prohibit-password' if account.is_root else 'no'}",
        f"AuthorizedKeysFile {keys}/authorized_keys",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "X11Forwarding no",
        f"SetEnv PATH={path}",
    )


def client(block: Sshd, account: Account) -> tuple[str, ...]:
    """Return the lines of ssh's configuration.

    Hosts of one job hold the job's own key. Each proves it: it is known for every host, and no check is off.
    """
    keys = f"{account.home}/.ssh"
    known = f"/bin/sh -c \"sed 's/^/* /' {keys}/{KEY}.pub 2>/dev/null || true\""
    return (
        "IgnoreUnknown KnownHostsCommand",  # before OpenSSH 8.5: known_hosts must be mounted then
        "Host *",
        f"    Port {block.port}",
        f"    User {account.name}",
        "    BatchMode yes",
        "    ConnectTimeout 20",
        f"    KnownHostsCommand {known}",
    )
