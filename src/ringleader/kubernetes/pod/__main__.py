"""``python -m ringleader.kubernetes.pod wait``: the init container of a launcher.

It lays what mpirun calls into the volume that the user's container sees, then `wait_for_workers`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from ringleader.errors import RefusedError, RequestError, RingleaderError
from ringleader.kubernetes.pod.wait_for_workers import (
    USUAL_PORTS,
    Limits,
    PodProbe,
    SshProbe,
    port_in_ssh_config,
    wait_for,
)

SCRIPTS = ("hosts.sh", "ssh", "kubexec.sh", "launch")
CHECKED = (
    *("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"),
    *("mpirun.openmpi", "mpiexec.openmpi", "mpirun.mpich", "mpiexec.mpich"),
)
"""Programs that start ranks; each is checked under its own name, where the image has it."""
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def main(argv: Sequence[str] | None = None) -> int:
    """Lay out mpirun's helpers, then wait for the workers. Returns the exit code."""
    options = _parser().parse_args(argv)
    try:
        _prepare(options)
        hosts = hosts_of(Path(options.hostfile).read_text(encoding="utf-8"), options.launcher)
        if hosts and options.wait_for != "off":
            asyncio.run(_wait(options, hosts))
    except RingleaderError as error:
        _say(str(error))
        return error.exit_code
    except OSError as error:
        _say(f"{error.filename or options.tools}: {error.strerror or error}")
        return 3
    return 0


def hosts_of(text: str, launcher: str) -> list[str]:
    """Return the hosts of a hostfile of either dialect, without a launcher in which ranks run."""
    names = [line.split()[0].partition(":")[0] for line in text.splitlines() if line.split()]
    return [name for name in names if name.partition(".")[0] != launcher]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ringleader.kubernetes.pod", description=__doc__)
    parser.add_argument("action", choices=["wait"])
    parser.add_argument("--tools", required=True, help="folder that the launcher's container sees")
    parser.add_argument("--hostfile", required=True)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--timeout", type=float, required=True, help="seconds for one that does not answer")
    parser.add_argument("--limit", type=float, help="seconds for all, whatever they wait for")
    parser.add_argument("--wait-for", choices=["answer", "address", "off"], default="answer")
    parser.add_argument("--spawn", choices=["ssh", "exec"], default="ssh")
    parser.add_argument("--launcher", default="", help="host name of a launcher in which ranks run")
    parser.add_argument("--known-hosts", default="", help="file that ssh knows the workers from")
    parser.add_argument("--port", type=int, action="append", default=[], help="of the workers' sshd")
    parser.add_argument("--ssh-config", default="", help="what ssh -G said in the launcher's image")
    parser.add_argument("--namespace", default="", help="of the job, for exec")
    parser.add_argument("--container", default="", help="of the workers, for exec")
    parser.add_argument(
        "--expect", action="append", default=[], help="NAME=VALUE of the launcher's variables"
    )
    parser.add_argument("--ranks-by-default", type=int, default=0)
    return parser


def _prepare(options: argparse.Namespace) -> None:
    variables = {
        "HOSTFILE": options.hostfile,
        "SLOTS": str(options.slots),
        "LAUNCHER": options.launcher,
        "KNOWN_HOSTS": options.known_hosts,
        "CONTAINER": options.container,
        "EXPECTED": " ".join(options.expect),
        "RANKS_BY_DEFAULT": str(options.ranks_by_default),
    }
    install(Path(options.tools), variables)
    if options.spawn == "exec":
        from ringleader.kubernetes.client.kubeconfig import server_of_pod

        if not (server := server_of_pod(os.environ)):
            raise RequestError("KUBERNETES_SERVICE_HOST is not set: this is not a Pod", where="environment")
        install_kubectl(Path(options.tools), server=server, namespace=options.namespace)


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
    known = "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())
    _write(folder / "job.sh", known, 0o644)
    (folder / "contacted").mkdir(exist_ok=True)
    (folder / "contacted").chmod(0o1777)


def install_kubectl(folder: Path, *, server: str, namespace: str, program: str = "kubectl") -> None:
    """Copy kubectl there, and the way to the API server with the Pod's own account.

    The kubeconfig holds no secret: it names the files that the kubelet keeps fresh. RefusedError where this
    image has no kubectl.
    """
    found = shutil.which(program)
    if found is None:
        what = "the operator's image has no kubectl, which spawning by exec needs"
        hint = "use the image that deploy/operator/Dockerfile makes"
        raise RefusedError(what, where="kubectl", hint=hint)
    shutil.copyfile(found, folder / "kubectl")
    (folder / "kubectl").chmod(0o755)
    cluster = {"server": server, "certificate-authority": f"{ACCOUNT}/ca.crt"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "pod",
        "clusters": [{"name": "pod", "cluster": cluster}],
        "users": [{"name": "pod", "user": {"tokenFile": f"{ACCOUNT}/token"}}],
        "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod", "namespace": namespace}}],
    }
    _write(folder / "kubeconfig", json.dumps(config), 0o644)


def _write(path: Path, text: str, mode: int) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


async def _wait(options: argparse.Namespace, hosts: Sequence[str]) -> None:
    by_address = options.wait_for == "address"
    if options.spawn == "ssh":
        limits = Limits(timeout=options.timeout, total=options.limit, knows_port=bool(options.port))
        ports = options.port or [*port_in_ssh_config(Path(options.ssh_config)), *USUAL_PORTS]
        ssh = SshProbe(tuple(dict.fromkeys(ports)), by_address=by_address)
        await wait_for(hosts, ssh, limits, say=_say)
        return
    from ringleader.kubernetes.client.cluster import Cluster
    from ringleader.kubernetes.client.kubeconfig import credentials

    cluster = Cluster(await credentials())
    try:
        probe = PodProbe(cluster, options.namespace, by_address=by_address)
        await wait_for(hosts, probe, Limits(timeout=options.timeout, total=options.limit), say=_say)
    finally:
        await cluster.close()


def _say(text: str) -> None:
    sys.stderr.write(f"ringleader: {text}\n")
    sys.stderr.flush()


def _end(number: int, _frame: object) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    # A container's first process does not hear SIGTERM unless it asks to: its Pod would stay for 30 s more.
    signal.signal(signal.SIGTERM, _end)
    sys.exit(main())
