"""Lay what mpirun calls into the volume that the user's container sees."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from ringleader.errors import RefusedError

SCRIPTS = ("hosts.sh", "ssh", "kubexec.sh", "launch")
CHECKED = (
    *("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"),
    *("mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich", "mpiexec.mpich"),
)
"""Programs that start ranks; each is checked under its own name, where the image has it."""
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def install(folder: Path, variables: Mapping[str, str]) -> None:
    """Write the scripts of a job into a folder; what a program there is may run by any user.

    ``variables``: what the scripts know of their job, by the names that they use.
    """
    source = files(__package__) / "scripts"
    for name in SCRIPTS:
        _write(folder / name, (source / name).read_text(encoding="utf-8"), 0o755)
    check = (source / "check_mpirun.sh").read_text(encoding="utf-8")
    for name in CHECKED:
        # A folder for each, so that only names which the image has come into its PATH.
        (folder / "check" / name).mkdir(parents=True, exist_ok=True)
        _write(folder / "check" / name / name, check, 0o755)
    _write(
        folder / "job.sh",
        "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items()),
        0o644,
    )
    contacted = folder / "contacted"
    contacted.mkdir(exist_ok=True)
    contacted.chmod(0o1777)


def install_kubectl(folder: Path, *, server: str, namespace: str, program: str = "kubectl") -> None:
    """Copy kubectl there, and the way to the API server with the Pod's own account.

    RefusedError where this image has no kubectl.
    """
    found = shutil.which(program)
    if found is None:
        raise RefusedError(
            "the operator's image has no kubectl, which spawning by exec needs",
            where="kubectl",
            hint="use the image that deploy/operator/Dockerfile makes",
        )
    shutil.copyfile(found, folder / "kubectl")
    (folder / "kubectl").chmod(0o755)
    _write(folder / "kubeconfig", kubeconfig(server, namespace), 0o644)


def kubeconfig(server: str, namespace: str) -> str:
    """Return a kubeconfig that holds no secret: it names the files that the kubelet keeps fresh."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "pod",
            "clusters": [
                {"name": "pod", "cluster": {"server": server, "certificate-authority": f"{ACCOUNT}/ca.crt"}}
            ],
            "users": [{"name": "pod", "user": {"tokenFile": f"{ACCOUNT}/token"}}],
            "contexts": [
                {"name": "pod", "context": {"cluster": "pod", "user": "pod", "namespace": namespace}}
            ],
        }
    )


def _write(path: Path, text: str, mode: int) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
