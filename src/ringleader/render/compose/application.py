"""An application with everything decided: which container is where, reached how, with which GPUs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.errors import RequestError
from ringleader.render.compose.rdma_devices import Nics, nics
from ringleader.render.compose.request import ComposeRequest, Mount, Network, Target, User
from ringleader.render.compose.request_faults import faults_of, network_of, port_of, slots_of, target_of

HEAD = "mpihead"
NODE = "mpinode"
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Container:
    """One service with one container."""

    service: str
    """``mpihead`` or ``mpinode-K``; also the name of its folder."""
    name: str
    """What hostfile and ssh call it: the service, or on several hosts the host."""
    address: str
    """Where its sshd is reached."""
    port: int
    """Of its sshd."""
    slots: int
    host: str = ""
    """The host it is bound to; empty: this one, or any of a swarm."""
    folder: str = ""
    """Directory of its compose file below the application's; empty: the application's own."""
    devices: tuple[int, ...] = ()
    """Numbers of its GPUs; empty: any ``gpus`` of the application."""


@dataclass(frozen=True, kw_only=True)
class Application:
    """One ``mpihead`` and its ``mpinode``s."""

    name: str
    image: str
    target: Target
    network: Network
    containers: tuple[Container, ...]
    """mpihead first. It takes ranks, as the others do."""
    gpus: int
    nics: Nics
    mounts: tuple[Mount, ...]
    env: tuple[tuple[str, str], ...]
    """What the profile sets, unless the user sets it."""
    workdir: str
    """Empty: what the image says."""
    shm_size: str
    user: User
    wait: int
    """Seconds that mpihead waits for the nodes' sshd."""

    @property
    def head(self) -> Container:
        """The container in which people type."""
        return self.containers[0]

    @property
    def nodes(self) -> tuple[Container, ...]:
        """All others."""
        return self.containers[1:]

    @property
    def on_loopback(self) -> bool:
        """Say whether the containers share one host's network: its sshds need no other address then."""
        return self.target is Target.ONE_HOST and self.network is Network.HOST

    @property
    def own_names(self) -> bool:
        """Say whether containers have host names of their own; else they are called as their host is."""
        return self.target is not Target.HOSTS


def application(request: ComposeRequest) -> Application:
    """Decide everything that was left open. RequestError with every fault of the request."""
    found = faults_of(request)
    if found:
        raise RequestError(found)
    target = target_of(request)
    given = nics(request.rdma)
    return Application(
        name=request.name,
        image=request.image,
        target=target,
        network=network_of(request),
        containers=_containers(request),
        gpus=request.gpus,
        nics=given,
        mounts=request.mounts,
        env=tuple({**dict(given.env), **dict(request.env)}.items()),
        workdir=request.workdir or (request.mounts[0].target if request.mounts else ""),
        shm_size=request.shm_size,
        user=request.user,
        wait=request.wait,
    )


def _containers(request: ComposeRequest) -> tuple[Container, ...]:
    target, network, port = target_of(request), network_of(request), port_of(request)
    shared = target is Target.ONE_HOST and network is Network.HOST
    found = []
    for index, slots in enumerate(slots_of(request)):
        service = f"{NODE}-{index}" if index else HEAD
        host = request.hosts[index].name if request.hosts else ""
        name = host if target is Target.HOSTS else service
        gpus = request.gpus
        found.append(
            Container(
                service=service,
                name=name,
                address=LOOPBACK if shared else name,
                port=port + index if shared else port,
                slots=slots,
                host=host,
                folder=host.replace(":", "-") if target is Target.HOSTS else "",
                devices=tuple(range(index * gpus, (index + 1) * gpus)) if target is Target.ONE_HOST else (),
            )
        )
    return tuple(found)
