"""A real podman with its own storage, and small images: the machine's programs are mounted, not copied.

Where the machine has cgroups of both versions crun 1.8 refuses to run, and without CAP_SYS_RESOURCE podman
4.3 cannot raise limits: podman gets a mount namespace with version 1 only, and lower limits.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.system_programs import program

DIRECTORIES = ("usr", "etc", "proc", "dev", "sys", "tmp", "run", "root", "var")
LINKS = {name: f"usr/{name}" for name in ("bin", "lib", "lib64", "sbin")}
CGROUPS = "/sys/fs/cgroup/unified"


def image_tar() -> bytes:
    """Return the files of an image in which the machine's /usr and /etc can be mounted."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name in DIRECTORIES:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, target in LINKS.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
    return made.getvalue()


def make_podman(place: Path) -> Path:
    """Return a program ``podman`` with a storage under ``place``; skip the test where podman cannot run."""
    if os.geteuid() != 0:
        pytest.skip("podman's storage of its own, and mount namespaces, need root here")
    real = program("podman", "podman crun")
    place.mkdir(parents=True)
    storage = f'[storage]\ndriver = "vfs"\ngraphroot = "{place}/g"\nrunroot = "{place}/r"\n'
    (place / "storage.conf").write_text(storage)
    limits = '[containers]\ndefault_ulimits = ["nofile=4000:4000", "nproc=9000:9000"]\n'
    # Hosts of a lab share the storage, but neither /dev/shm nor /run: without a mark of this boot that they
    # share, podman takes the containers of other hosts for those of an earlier boot, and forgets them.
    limits += f'[engine]\nlock_type = "file"\ntmp_dir = "{place}/t"\nevents_logger = "none"\n'
    (place / "containers.conf").write_text(limits)
    copy = place / "real"
    os.link(real, copy) if os.stat(real).st_dev == os.stat(place).st_dev else shutil.copy(real, copy)
    lines = [
        "#!/bin/sh",
        f"export CONTAINERS_STORAGE_CONF={shlex.quote(f'{place}/storage.conf')}",
        f"export CONTAINERS_CONF={shlex.quote(f'{place}/containers.conf')}",
    ]
    run = f'exec {shlex.quote(str(copy))} "$@"'
    if os.path.ismount(CGROUPS) and Path("/sys/fs/cgroup/memory").is_dir():
        run = f'exec unshare -m sh -c {shlex.quote(f"umount {CGROUPS}; {run}")} sh "$@"'
    made = place / "bin/podman"
    made.parent.mkdir()
    made.write_text("\n".join([*lines, run, ""]))
    made.chmod(0o755)
    return made


def add_image(podman: Path, name: str, *, path: str = "", words: tuple[str, ...] = ()) -> None:
    """Make an image; ``path``: its PATH, the tests' own Python first by default."""
    change = f"ENV PATH={path or os.path.dirname(sys.executable)}:/usr/bin:/bin"
    words = (str(podman), "import", *words, "--change", change, "-", name)
    subprocess.run(words, input=image_tar(), check=True, capture_output=True, timeout=60)


def copy_image(source: Path, target: Path, name: str) -> None:
    """Give another storage the same image, as ``podman save`` and ``load`` do between machines."""
    saved = subprocess.run((source, "save", name), capture_output=True, check=True, timeout=60).stdout
    subprocess.run((target, "load"), input=saved, check=True, capture_output=True, timeout=60)


def mounts() -> tuple[str, ...]:
    """Return the options of ``ringleader run`` that give an image the machine's programs and our own."""
    ours = {Path(path).resolve() for path in (sys.prefix, sys.base_prefix)}
    ours |= {Path(__file__).resolve().parents[1] / "src"}
    places = [f"{one}:{one}" for one in sorted(ours) if not one.is_relative_to("/usr")]
    return tuple(f"--container-mount={one}" for one in ("/usr:/usr:ro", "/etc:/etc:ro", *places))


def works(podman: Path, name: str) -> str:
    """Return why no container of the image can be started here; empty: one was."""
    words = (podman, "run", "--rm", "--network=host", "--pid=host", "--volume=/usr:/usr", name, "true")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return done.stderr.strip()[-300:] if done.returncode else ""


def names(podman: Path) -> list[str]:
    """Return the containers that are there, ended ones too."""
    words = (podman, "ps", "--all", "--format", "{{.Names}} {{.State}}")
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout.split("\n")[
        :-1
    ]
