"""What exists of a lab, and the steps that remove it. Pure: nothing here touches anything."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.lab.steps import Command, Phase, RemoveHostsBlock, Step


@dataclass(frozen=True, kw_only=True)
class Remains:
    """What of a lab exists on this machine."""

    processes: tuple[int, ...] = ()
    """Everything that runs in one of the lab's network namespaces."""
    namespaces: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Cables first, the switch last."""
    directory: str = ""
    """Empty where it does not exist."""
    in_hosts_file: bool = False
    netns_mount: bool = False
    """True where this is the last lab and labs made ``/run/netns`` a mount: it goes with this lab."""

    def __bool__(self) -> bool:
        return bool(self.processes or self.namespaces or self.links or self.directory or self.in_hosts_file)


def kill_step(processes: tuple[int, ...]) -> Command:
    """Return the step that ends these processes; one that is gone by itself is not a failure."""
    return Command(argv=("kill", "-KILL", *map(str, processes)), may_fail=True)


def down_phase(name: str, remains: Remains) -> Phase:
    """Return what ``lab down`` does about these remains."""
    return Phase(title=f"removing lab {name}", steps=tuple(removal_steps(name, remains)))


def removal_steps(name: str, remains: Remains) -> list[Step]:
    """Return every step that removes a lab: processes first, what they lived in after them."""
    steps: list[Step] = [RemoveHostsBlock(name=name)] if remains.in_hosts_file else []
    steps += [kill_step(remains.processes)] if remains.processes else []
    steps += network_removal_steps(remains)
    steps += [Command(argv=("rm", "-rf", remains.directory))] if remains.directory else []
    return [*steps, *(netns_steps() if remains.netns_mount else [])]


def network_removal_steps(remains: Remains) -> list[Step]:
    """Return the steps that remove links and namespaces, once no process is left in them."""
    argvs = [("ip", "link", "del", link) for link in remains.links]
    argvs += [("ip", "netns", "del", namespace) for namespace in remains.namespaces]
    return [Command(argv=argv) for argv in argvs]


def netns_steps(*, mounted: bool = True) -> list[Step]:
    """Return the steps that undo what the first ``ip netns add`` on a machine does."""
    unmount = [Command(argv=("umount", "-n", "/run/netns"))] if mounted else []
    return [*unmount, Command(argv=("rmdir", "/run/netns"))]
