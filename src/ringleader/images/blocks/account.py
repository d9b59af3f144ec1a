"""The block ``account``: who runs the containers."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.instructions import Run, Step, User, Workdir, words
from ringleader.images.recipe_fields import NAME, number, text
from ringleader.images.stage_steps import Half, Halves, Setting

ROOT = "root"
UBUNTU_UID = 1000
"""Number of the account ``ubuntu`` in Ubuntu's images since 23.04."""
NAMES = """
_apt _ssh adm audio backup bin cdrom crontab daemon dialout dip disk docker fax floppy games gnats input irc
kmem kvm list lp mail man messagebus news nobody nogroup operator plugdev proxy render sasl shadow src sshd
ssl-cert staff sudo sync sys systemd-journal systemd-network systemd-resolve systemd-timesync tape tty users
utmp uucp video voice www-data
"""
TAKEN = frozenset(NAMES.split())
"""Accounts and groups that Debian and Ubuntu have, or get with the packages of an image."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """Arguments of the block. Without it modern images make ``trainer`` with number 1000."""

    name: str = text(NAME, "trainer")
    """``root``: no account is made. Locked memory by IPC_LOCK works for root only, unless the runtime's limit
    is raised."""
    uid: int = number(1000, least=1000, most=60000)
    """Also the number of its group. Lower ones are the system's own."""

    @property
    def is_root(self) -> bool:
        return self.name == ROOT

    @property
    def home(self) -> str:
        return "/root" if self.is_root else f"/home/{self.name}"

    @property
    def owner(self) -> str:
        """Who owns a user's files: ``uid:gid``, as files may come before the account; empty: root."""
        return "" if self.is_root else f"{self.uid}:{self.uid}"


def account_of(setting: Setting) -> Account:
    """Return the account of an image; images of before had root alone."""
    found = setting.blocks.get("account")
    if isinstance(found, Account):
        return found
    return Account(name=ROOT if setting.historical else "trainer")


def halves(block: Account, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    files = setting.blocks.get("files")
    place: tuple[Step, ...] = () if files is not None and files.workdir else (Workdir(path=block.home),)
    if block.is_root:
        return Halves(runtime=Half(last=place))
    # First of all: files that are copied later may lie in its home.
    return Halves(runtime=Half(before=(_made(block),), last=(*place, User(name=block.owner))))


def _made(block: Account) -> Run:
    number, home = str(block.uid), block.home
    mine = ("-o", number, "-g", number)
    # Ubuntu's images have an account of their own, which nobody uses.
    in_the_way = block.uid == UBUNTU_UID or block.name == "ubuntu"
    away = ("if id ubuntu > /dev/null 2>&1; then userdel --remove ubuntu; fi",) if in_the_way else ()
    return Run(
        commands=(
            *away,
            words("groupadd", "--gid", number, block.name),
            words(
                *("useradd", "--uid", number, "--gid", number, "--create-home"),
                *("--shell", "/bin/bash", "--password", "*", block.name),
            ),
            words("install", "-d", "-m", "0755", *mine, home),
            words("install", "-d", "-m", "0700", *mine, f"{home}/.ssh"),
        ),
        why="The account of the containers, without a password. Others may read its home, but not its keys.",
    )
