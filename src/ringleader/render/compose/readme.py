"""The page that lies in an application's directory: how it is started, used and ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ringleader.render.compose.application import Application, Container
from ringleader.render.compose.request import FOLDER, Target


def readme(application: Application) -> str:
    """Return the text, in Markdown."""
    nodes = f"{len(application.nodes)} mpinode container{'' if len(application.nodes) == 1 else 's'}"
    lines = [
        f"# {application.name}",
        "",
        f"mpihead and {nodes}, made by `ringleader render compose`.",
        "Each container's folder holds its private keys: keep it readable for its user only.",
        "",
        *_start(application),
        "",
        *_train(application),
        "",
        *_end(application),
    ]
    return "\n".join(lines) + "\n"


def training(application: Application) -> tuple[str, str]:
    """Return the two commands a user comes for: on mpihead alone, and on all containers."""
    inside = _inside(application)
    alone = f"{inside} ringleader run -n {application.head.slots} python train.py"
    return alone, f"{inside} ringleader run --hostfile {FOLDER}/hostfile python train.py"


def start_command(application: Application) -> str:
    """Return what starts the application, in its directory or in each host's."""
    if application.target is Target.SWARM:
        return f"docker stack deploy -c stack.yaml {application.name}"
    return "docker compose up -d --wait"


def _inside(application: Application) -> str:
    """Return what goes before a command that is to run in mpihead."""
    if application.target is Target.SWARM:
        return f'docker exec -it "$(docker ps -qf name={application.name}_mpihead)"'
    return "docker compose exec mpihead"


def _start(application: Application) -> list[str]:
    start = _console([start_command(application)])
    waits = f"mpihead waits up to {application.wait} s for the others and says for whom: "
    if application.target is Target.SWARM:
        logs = f"`docker service logs {application.name}_mpihead`"
        return ["Start it, on a manager of the swarm:", "", *start, "", f"{waits}{logs}."]
    if application.target is Target.ONE_HOST:
        return ["Start it:", "", *start, "", f"{waits}`docker compose logs mpihead`."]
    return [
        "Bring each host its own folder, and no other: whoever has mpihead's can log in everywhere.",
        "",
        *_console(_copy(one, application.name) for one in application.containers),
        "",
        f"Then on each host, in `{application.name}`:",
        "",
        *start,
        "",
        f"{waits}`docker compose logs mpihead` on {application.head.name}.",
    ]


def _train(application: Application) -> list[str]:
    where = ""
    if application.target is Target.SWARM:
        where = f" on the host that `docker service ps {application.name}_mpihead` names,"
    elif application.target is Target.HOSTS:
        where = f" on {application.head.name}, in `{application.name}`,"
    return [f"Train,{where} in mpihead alone and in all containers:", "", *_console(training(application))]


def _copy(one: Container, name: str) -> str:
    host = f"[{one.name}]" if ":" in one.name else one.name
    return f"scp -rp {one.folder} {host}:{name}"


def _end(application: Application) -> list[str]:
    if application.target is Target.SWARM:
        return ["End it:", "", *_console([f"docker stack rm {application.name}"])]
    where = "End it:" if application.target is Target.ONE_HOST else "End it, on each host:"
    return [where, "", *_console(["docker compose down"])]


def _console(commands: Iterable[str]) -> list[str]:
    return ["```console", *(f"$ {one}" for one in commands), "```"]
