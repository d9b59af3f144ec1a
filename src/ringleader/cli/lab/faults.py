"""``ringleader lab cut``, ``heal``, ``kill``, ``slow``: faults of one host, on request."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RequestError, RingleaderError, collected
from ringleader.lab import fault_injection, requirements, saved_state
from ringleader.lab.slow_link import slow_link_of, slow_steps
from ringleader.lab.steps import Phase, script
from ringleader.option_fields import argument, flag, option


@dataclass(frozen=True, kw_only=True)
class LabOptions:
    """A lab that there is."""

    name: str | None = option(
        "Which lab. [default: RINGLEADER_LAB, else `lab`, else the only one there is]",
        *("--name", "--lab-name"),
        envvar=saved_state.VARIABLE,
        metavar="NAME",
    )


@dataclass(frozen=True, kw_only=True)
class HostOptions(LabOptions):
    """A host of a lab."""

    host: str = argument("HOST")


def _to_host(
    change: Callable[[saved_state.Lab, saved_state.LabHost], None],
) -> Callable[[HostOptions], None]:
    """Return what a command does that changes one host."""

    def run(options: HostOptions) -> None:
        requirements.check_machine(os.environ)
        lab = saved_state.current(options.name)
        change(lab, fault_injection.find_host(lab, options.host))

    return run


@dataclass(frozen=True, kw_only=True)
class SlowOptions(HostOptions):
    """The options of ``lab slow``."""

    into: str | None = option("Rate of what reaches the host: 100mbit.", metavar="RATE")
    out_of: str | None = option("Rate of what the host sends.", metavar="RATE")
    delay: str | None = option(
        "Delay of each frame, 200us or 1ms: in the directions that have a rate, else in both.", metavar="TIME"
    )
    off: bool = flag("Give the link the rates of `lab up` back, both ways.")
    dry_run: bool = flag("Print, as a shell script, what would be done.")


def slow(options: SlowOptions) -> None:
    """Limit a host's link, or lift the limit."""
    faults: list[Fault] = []
    with collected(faults):
        limit = slow_link_of(into=options.into, out_of=options.out_of, delay=options.delay, off=options.off)
    try:
        lab = saved_state.current(options.name)
        host = fault_injection.find_host(lab, options.host)
    except RingleaderError as error:
        if not faults:
            raise
        faults += error.faults
    if faults:
        raise RequestError(faults)
    if options.dry_run:
        steps = slow_steps(lab.spec, lab.number(host), limit)
        print(script((Phase(title=f"the link of {host.name}", steps=tuple(steps)),)), end="")
        return
    requirements.check_machine(os.environ)
    fault_injection.slow(lab, host, limit)


FAULT_COMMANDS = (
    Command(
        "cut",
        options=HostOptions,
        run=_to_host(fault_injection.cut),
        help="Cut a host's link: its peers see silence, as with a pulled cable behind a switch.",
    ),
    Command(
        "heal",
        options=HostOptions,
        run=_to_host(fault_injection.heal),
        help="Mend a host's link, and start the host again where it was killed.",
    ),
    Command(
        "kill",
        options=HostOptions,
        run=_to_host(fault_injection.kill),
        help="Kill every process on a host, its sshd included.",
    ),
    Command(
        "slow",
        options=SlowOptions,
        run=slow,
        help="Slow a host's link down, one way or both, as a bad cable or a port at a lower rate does.",
    ),
)
