"""The block ``sshd``: what mpirun reaches the image's containers by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ringleader.images.blocks.account import Account, account_of
from ringleader.images.blocks.block import Block, Conflict
from ringleader.images.instructions import Command, Expose, Run, Step, shell, write
from ringleader.images.recipe_fields import NAME, number, text
from ringleader.images.stage_steps import VENV, BlockSteps, ImageContext, StageSteps

CONFIG = "/etc/ssh/sshd_config"
"""The usual place: operators start workers with ``sshd -De`` and nothing else."""
CLIENT = "/etc/ssh/ssh_config"
PROFILE = "/etc/profile.d/ringleader.sh"
"""For login shells: they set PATH anew after sshd did."""
START = ("/usr/sbin/sshd", "-De", "-f", CONFIG)
APT = ("openssh-client", "openssh-server")
KEY_TYPES = ("rsa", "ecdsa", "ed25519")
KEY = "id_rsa"
"""The job's key in the account's ~/.ssh, of any type: operators of MPIJobs give it that name."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BIN_ORDER = ("mpi", "ucx", "libfabric", "rdma")
"""Blocks whose programs come first on PATH, in this order."""
HISTORICAL_KEYS = "/root/.ssh"


@dataclass(frozen=True, kw_only=True)
class Sshd(Block):
    """Arguments of the block. Keys are never part of an image; they are mounted, or made at the start."""

    table = "sshd"
    selects = (("port", "port"), ("keys", "keys"))

    port: int = number(2222, least=1, most=65535)
    """Above 1023 it needs no privilege; 22 is the host's own on host networks."""
    keys: str = text(NAME, "mounted", one_of=("mounted", "in-image"))
    """``in-image``: one key pair for all containers, made while the image is built, as images of 2018 had it.
    Only in historical images: whoever has the image has the key."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return sshd without any key, its configuration, the client's, and PATH for sessions."""
        account = account_of(image)
        keys = f"{account.home}/.ssh"
        path = session_path(image)
        configured = Run(
            commands=(
                shell("rm", "-f", *_host_keys(), *(f"{key}.pub" for key in _host_keys())),
                "mkdir -p /run/sshd",
                # An account that is locked is refused even with a key; `*` is no password, and not locked.
                *((shell("usermod", "--password", "*", "root"),) if account.is_root else ()),
                write(CONFIG, server(self, account, path)),
                write(PROFILE, (f"export PATH={path}",)),
                write(CLIENT, client(self, account)),
            ),
            why=f"Whoever connects proves the key in {keys}, and so does the host: one key pair for one job.",
        )
        no_host_keys = Run(
            commands=("mkdir -p /etc/ssh", shell("touch", *_host_keys())),
            why="The package makes host keys where there are none, and no key may be part of an image.",
        )
        return self._runtime((configured,), START, before=(no_host_keys,))

    def historical_steps(self, image: ImageContext) -> BlockSteps:
        """Return sshd for root, a client that asks nothing, and perhaps a key pair for all containers."""
        client_lines = ("    StrictHostKeyChecking no", "    UserKnownHostsFile /dev/null")
        asks_nothing = Run(
            commands=(
                "mkdir -p /var/run/sshd",
                shell("sed", "-i", f"s/^#*Port .*/Port {self.port}/", CONFIG),
                shell("sed", "-i", "/StrictHostKeyChecking/d", CLIENT),
                write(CLIENT, (*client_lines, f"    Port {self.port}"), append=True),
            ),
            why="Containers reach each other on this port, and none is asked who it is.",
        )
        key = f"{HISTORICAL_KEYS}/id_rsa"
        key_pair = Run(
            commands=(
                shell("install", "-d", "-m", "0700", HISTORICAL_KEYS),
                shell("ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", key),
                shell("cp", f"{key}.pub", f"{HISTORICAL_KEYS}/authorized_keys"),
            ),
            why="Password-less ssh by a key in the image: whoever has the image may enter "
            "all of its containers.",
        )
        steps = (asks_nothing, key_pair) if self.keys == "in-image" else (asks_nothing,)
        return self._runtime(steps, ("/usr/sbin/sshd", "-D", "-p", str(self.port)))

    def _runtime(
        self, steps: tuple[Step, ...], start: tuple[str, ...], before: tuple[Step, ...] = ()
    ) -> BlockSteps:
        last = (Expose(port=self.port), Command(argv=start))
        return BlockSteps(runtime=StageSteps(apt=APT, before=before, steps=steps, last=last))

    def conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield a key in the image."""
        if self.keys == "in-image":
            yield Conflict(
                path=("sshd", "keys"),
                what="a key in a layer opens every container to whoever has the image: "
                "only historical images",
                hint="leave it out and mount the job's keys",
            )

    def shell_checks(self, image: ImageContext) -> Iterator[str]:
        """Start it on a free port, and log in where the key is in the image; else ask for its host key."""
        login = 'ssh -o BatchMode=yes -o ConnectTimeout=5 -p "$port" root@127.0.0.1 echo logged in'
        key = 'sh -c "ssh-keyscan -T 5 -p $port 127.0.0.1 | grep ."'
        ask = login if self.keys == "in-image" else key
        yield 'port=$({python} -c "{free_port}")'
        yield '"$(command -v sshd)" -D -e -p "$port" -o PidFile=none 2> "$work/sshd" &'
        yield "sshd=$!"
        yield "tries=0"
        yield f"until {ask} > /dev/null 2>&1 || test $tries -ge {{deadline}}; do"
        yield "    tries=$((tries + 1))"
        yield "    sleep 1"
        yield "done"
        yield f'check "sshd on port $port" {ask}'
        yield 'kill "$sshd" 2> /dev/null'
        yield 'test $failed -eq 0 || cat "$work/sshd"'


def _host_keys() -> tuple[str, ...]:
    return tuple(f"/etc/ssh/ssh_host_{kind}_key" for kind in KEY_TYPES)


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
