"""What the self-test has found out about the place it runs in. Pure values; ``judge`` decides on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Module:
    """A Python package, imported in its own process."""

    name: str
    installed: str = ""
    """Version by its metadata; empty: not installed."""
    version: str = ""
    """As the imported package says it; empty where it could not be imported."""
    error: str = ""
    """Why it could not be imported, its last line; empty where it could."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """By package: ``cuda``, ``cudnn``, ``nccl``, ``gpus``, ``library``."""
    libraries: tuple[str, ...] = ()
    """Paths of the shared libraries of interest that the process had loaded then."""


@dataclass(frozen=True, kw_only=True)
class Library:
    """A shared library, loaded by its name in its own process."""

    name: str
    path: str = ""
    """The file; empty where none is found."""
    version: str = ""
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """The MPI that starts ranks here."""

    family: str = ""
    """Empty: there is none."""
    version: str = ""
    mpirun: str = ""
    library: str = ""
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Key:
    """A file with a private key."""

    path: str
    mounted: bool
    """True: it lies below a mount, so that it is not part of the image."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """Who runs us."""

    uid: int
    name: str
    """Empty: the number has no account."""
    home: str
    home_error: str = ""
    """Why nothing can be written there; empty where it can."""
    memlock_soft: int = -1
    """Bytes that may be locked; -1: any number."""


@dataclass(frozen=True, kw_only=True)
class TwoRankTest:
    """What came of sshd, and of the two ranks."""

    sshd: str = ""
    """Path of the program; empty: there is none."""
    version: str = ""
    config: str = ""
    """The image's own configuration that it was started with; empty: one of ours."""
    start_error: str = ""
    login_error: str = ""
    over: str = ""
    """How the ranks were started: ``ssh`` or ``local``; empty: not at all."""
    ranks: Mapping[str, Any] = field(default_factory=dict)
    """What rank 0 said: ``size``, ``through``, ``library``, ``memlock``."""
    ranks_error: str = ""
    training: Mapping[str, str] = field(default_factory=dict)
    """Framework → why two ranks did not train a step with it; empty where they did."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Everything."""

    manifest: Mapping[str, Any] | None
    """What the image says of itself; ``None``: nothing."""
    manifest_error: str = ""
    python: str
    executable: str
    ringleader: str
    modules: tuple[Module, ...]
    libraries: tuple[Library, ...]
    system_nccl: tuple[str, ...] = ()
    """Files of an NCCL outside of Python's packages."""
    mpi: Launcher = Launcher()
    providers: tuple[str, ...] = ()
    """Names of the verbs providers: ``mlx5``."""
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """File → libraries that ``ldd`` does not find for it."""
    looked_at: int = 0
    """Files that ``ldd`` was asked about."""
    ldd_error: str = ""
    account: Account
    keys: tuple[Key, ...] = ()
    pip_sources: tuple[str, ...] = ()
    """Settings of pip that name an index: ``/etc/pip.conf: index-url = …``, credentials removed."""
    apt_hosts: tuple[str, ...] = ()
    """Hosts that apt asks."""
    two_ranks: TwoRankTest = TwoRankTest()

    def module(self, name: str) -> Module:
        """Return a module by its name."""
        return next((one for one in self.modules if one.name == name), Module(name=name))

    def library(self, name: str) -> Library:
        """Return a library by its name."""
        return next((one for one in self.libraries if one.name == name), Library(name=name))

    def block(self, name: str) -> Mapping[str, Any] | None:
        """Return the arguments of a block that the image claims; ``None`` where it claims none."""
        if self.manifest is None:
            return None
        found = self.manifest.get("blocks", {}).get(name)
        return found if isinstance(found, Mapping) else None
