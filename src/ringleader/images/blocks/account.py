"""The block ``account``: who runs the containers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ringleader.images.blocks.block import Block, Conflict
from ringleader.images.instructions import Run, Step, User, Workdir, shell
from ringleader.images.recipe_fields import NAME, number, text
from ringleader.images.selection import Selection
from ringleader.images.stage_steps import BlockSteps, ImageContext, StageSteps

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

WHY = "The account of the containers, without a password. Others may read its home, but not its keys."


@dataclass(frozen=True, kw_only=True)
class Account(Block):
    """Arguments of the block. Without it modern images make ``trainer`` with number 1000."""

    table = "account"

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

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return what makes the account, and what containers run as."""
        files = image.blocks.get("files")
        place: tuple[Step, ...] = ()
        if files is None or not files.workdir:
            place = (Workdir(path=self.home),)
        if self.is_root:
            return BlockSteps(runtime=StageSteps(last=place))
        # First of all: files that are copied later may lie in its home.
        last = (*place, User(name=self.owner))
        return BlockSteps(runtime=StageSteps(before=(self._made(),), last=last))

    def _made(self) -> Run:
        number, home = str(self.uid), self.home
        mine = ("-o", number, "-g", number)
        # Ubuntu's images have an account of their own, which nobody uses.
        in_the_way = self.uid == UBUNTU_UID or self.name == "ubuntu"
        removed = ("if id ubuntu > /dev/null 2>&1; then userdel --remove ubuntu; fi",) if in_the_way else ()
        return Run(
            commands=(
                *removed,
                shell("groupadd", "--gid", number, self.name),
                shell(
                    *("useradd", "--uid", number, "--gid", number, "--create-home"),
                    *("--shell", "/bin/bash", "--password", "*", self.name),
                ),
                shell("install", "-d", "-m", "0755", *mine, home),
                shell("install", "-d", "-m", "0700", *mine, f"{home}/.ssh"),
            ),
            why=WHY,
        )

    def conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield a name that the system has already."""
        if self.name in TAKEN:
            what = f"{self.name} is an account or a group of the system already"
            yield Conflict(path=("account", "name"), what=what, hint="another name, such as trainer")

    def historical_conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield every account but root."""
        if not self.is_root:
            what = "historical images have one account, root"
            yield Conflict(path=("account", "name"), what=what, hint="leave the block out")

    def choose(self, selection: Selection) -> Selection:
        """Choose root or not."""
        return replace(selection, is_root=self.is_root)


def account_of(image: ImageContext) -> Account:
    """Return the account of an image; images of before had root alone."""
    found = image.blocks.get("account")
    if isinstance(found, Account):
        return found
    return Account(name=ROOT if image.historical else "trainer")
