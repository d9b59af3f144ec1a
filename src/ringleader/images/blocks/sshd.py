"""The block ``sshd``: what mpirun reaches the image's containers by."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks import historical
from ringleader.images.blocks.account import Account, account_of
from ringleader.images.blocks.rdma import AMAZON
from ringleader.images.instructions import Command, Expose, Run, Step, words, write
from ringleader.images.recipe_fields import NAME, number, text
from ringleader.images.stage_steps import VENV, Half, Halves, Setting

CONFIG = "/etc/ssh/sshd_config"
"""The usual place: operators start workers with ``sshd -De`` and nothing else."""
CLIENT = "/etc/ssh/ssh_config"
PROFILE = "/etc/profile.d/ringleader.sh"
"""For login shells: they set PATH anew after sshd did."""
START = ("/usr/sbin/sshd", "-De", "-f", CONFIG)
KEY_TYPES = ("rsa", "ecdsa", "ed25519")
KEY = "id_rsa"
"""The job's key in the account's ~/.ssh, of any type: operators of MPIJobs give it that name."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, kw_only=True)
class Sshd:
    """Arguments of the block. Keys are never part of an image; they are mounted, or made at the start."""

    port: int = number(2222, least=1, most=65535)
    """Above 1023 it needs no privilege; 22 is the host's own on host networks."""
    keys: str = text(NAME, "mounted", one_of=("mounted", "in-image"))
    """``in-image``: one key pair for all containers, made while the image is built, as images of 2018 had it.
    Only in historical images: whoever has the image has the key."""


def halves(block: Sshd, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    if setting.historical:
        return historical.sshd(block, setting)
    account = account_of(setting)
    keys = f"{account.home}/.ssh"
    path = session_path(setting)
    configured = Run(
        commands=(
            words("rm", "-f", *_host_keys(), *(f"{key}.pub" for key in _host_keys())),
            "mkdir -p /run/sshd",
            # An account that is locked is refused even with a key; `*` is no password, and not locked.
            *((words("usermod", "--password", "*", "root"),) if account.is_root else ()),
            write(CONFIG, server(block, account, path)),
            write(PROFILE, (f"export PATH={path}",)),
            write(CLIENT, client(block, account)),
        ),
        why=f"Whoever connects proves the key in {keys}, and so does the host: one key pair for one job.",
    )
    start: tuple[Step, ...] = (Expose(port=block.port), Command(argv=START))
    return Halves(
        runtime=Half(
            apt=("openssh-client", "openssh-server"),
            before=(_no_host_keys(),),
            steps=(configured,),
            last=start,
        )
    )


def _host_keys() -> tuple[str, ...]:
    return tuple(f"/etc/ssh/ssh_host_{kind}_key" for kind in KEY_TYPES)


def _no_host_keys() -> Run:
    return Run(
        commands=("mkdir -p /etc/ssh", words("touch", *_host_keys())),
        why="The package makes host keys where there are none, and no key may be part of an image.",
    )


def session_path(setting: Setting) -> str:
    """Return PATH as ssh's sessions get it: they see nothing of an image's variables."""
    places = [f"{VENV}/bin"]
    for name in ("mpi", "ucx", "libfabric"):
        block = setting.blocks.get(name)
        if block is not None and block.source == "build":
            places.append(f"{block.prefix}/bin")
    rdma = setting.blocks.get("rdma")
    if rdma is not None and rdma.user_space == "efa":
        places.append(f"{AMAZON}/bin")
    if setting.cuda:
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
