"""The block ``account``: who runs the containers."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import NAME, number, text
from ringleader.images.halves import Half, Halves, Setting
from ringleader.images.steps import Run, Step, User, Workdir, words

ROOT = "root"
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
    number = str(block.uid)
    return Run(
        commands=(
            f'if [ "$(id -nu {number} 2> /dev/null)" = ubuntu ]; then userdel --remove ubuntu; fi',
            words("groupadd", "--gid", number, block.name),
            words(
                *("useradd", "--uid", number, "--gid", number, "--create-home"),
                *("--shell", "/bin/bash", "--password", "*", block.name),
            ),
            words(
                "install", "-d", "-m", "0700", "-o", number, "-g", number, block.home, f"{block.home}/.ssh"
            ),
        ),
        why="The account of the containers, without a password. Ubuntu's images have a 1000 already.",
    )
