"""``ringleader lab cut``, ``heal``, ``kill``, ``slow``: faults of one host, on request."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from ringleader.cli.lab.lab_options import DRY_RUN, HOST, NAME, HostOptions
from ringleader.cli.typed_command import Command, Option
from ringleader.errors import Fault, RequestError, RingleaderError, collected
from ringleader.lab import fault_injection, requirements, saved_state
from ringleader.lab.slow_link import slow_link_of, slow_steps
from ringleader.lab.steps import Phase, script


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
class SlowOptions:
    """The options of ``lab slow``, as they were written."""

    host: str
    into: str | None = None
    out_of: str | None = None
    delay: str | None = None
    off: bool = False
    name: str | None = None
    dry_run: bool = False


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
        params=[NAME, HOST],
        help="Cut a host's link: its peers see silence, as with a pulled cable behind a switch.",
    ),
    Command(
        "heal",
        options=HostOptions,
        run=_to_host(fault_injection.heal),
        params=[NAME, HOST],
        help="Mend a host's link, and start the host again where it was killed.",
    ),
    Command(
        "kill",
        options=HostOptions,
        run=_to_host(fault_injection.kill),
        params=[NAME, HOST],
        help="Kill every process on a host, its sshd included.",
    ),
    Command(
        "slow",
        options=SlowOptions,
        run=slow,
        params=[
            NAME,
            HOST,
            Option(["--into"], metavar="RATE", help="Rate of what reaches the host: 100mbit."),
            Option(["--out-of"], metavar="RATE", help="Rate of what the host sends."),
            Option(
                ["--delay"],
                metavar="TIME",
                help="Delay of each frame, 200us or 1ms: in the directions that have a rate, else in both.",
            ),
            Option(["--off"], is_flag=True, help="Give the link the rates of `lab up` back, both ways."),
            DRY_RUN,
        ],
        help="Slow a host's link down, one way or both, as a bad cable or a port at a lower rate does.",
    ),
)
