"""``python -m ringleader.kubernetes.pod wait``: the init container of a launcher."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from ringleader.errors import RequestError, RingleaderError
from ringleader.kubernetes.pod.launch_scripts import install, install_kubectl
from ringleader.kubernetes.pod.wait_for_workers import (
    USUAL_PORTS,
    Limits,
    SshProbe,
    port_in_ssh_config,
    wait_for,
)


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
        install_kubectl(Path(options.tools), server=_server(), namespace=options.namespace)


def _server() -> str:
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST", ""),
        os.environ.get("KUBERNETES_SERVICE_PORT", "443"),
    )
    if not host:
        raise RequestError("KUBERNETES_SERVICE_HOST is not set: this is not a Pod", where="environment")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _found_port(path: str) -> tuple[int, ...]:
    found = Path(path)
    return (
        port_in_ssh_config(found.read_text(encoding="utf-8", errors="replace"))
        if path and found.is_file()
        else ()
    )


async def _wait(options: argparse.Namespace, hosts: Sequence[str]) -> None:
    by_address = options.wait_for == "address"
    if options.spawn == "ssh":
        ports = options.port or [*_found_port(options.ssh_config), *USUAL_PORTS]
        limits = Limits(timeout=options.timeout, total=options.limit, knows_port=bool(options.port))
        ssh = SshProbe(tuple(dict.fromkeys(ports)), by_address=by_address)
        await wait_for(hosts, ssh, limits, say=_say)
        return
    from ringleader.kubernetes.client.cluster import Cluster
    from ringleader.kubernetes.client.kubeconfig import credentials
    from ringleader.kubernetes.pod.wait_for_workers import PodProbe

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
