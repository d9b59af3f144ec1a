"""A host's link, slowed down on request: one way or both, and given its rates back. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ringleader.errors import Fault, RequestError
from ringleader.lab.spec import LabSpec, parse_latency, parse_rate
from ringleader.lab.steps import Command, Step
from ringleader.lab.virtual_network import shaping


@dataclass(frozen=True, kw_only=True)
class SlowLink:
    """What a link is limited to; a direction without a limit stays as it is."""

    into: int | None = None
    """Rate of what reaches the host, bit/s."""
    out_of: int | None = None
    """Rate of what the host sends, bit/s."""
    delay: float | None = None
    """Seconds for each frame: in the directions that have a rate here, or in both where none has."""


def slow_link_of(*, into: str | None, out_of: str | None, delay: str | None, off: bool) -> SlowLink | None:
    """Return the limit that these words make, ``None`` to lift all; RequestError with every fault."""
    faults: list[Fault] = []
    if off and (into or out_of or delay):
        faults.append(
            Fault(where="--off", what="lifts all limits: it takes none", hint="leave the rates out")
        )
    if not (off or into or out_of or delay):
        hint = "for example --into 100mbit, --out-of 1gbit, --delay 5ms or --off"
        faults.append(Fault(where="ringleader lab slow", what="no limit is given", hint=hint))
    made = SlowLink(
        into=_rate("--into", into, faults),
        out_of=_rate("--out-of", out_of, faults),
        delay=_delay(delay, faults),
    )
    if faults:
        raise RequestError(faults)
    return None if off else made


def _rate(option: str, word: str | None, faults: list[Fault]) -> int | None:
    if word is None:
        return None
    try:
        rate = parse_rate(word)
    except ValueError as error:
        faults.append(Fault(where=option, what=str(error), hint="for example 100mbit or 1gbit"))
        return None
    if not 10**5 <= rate <= 10**12:
        hint = "use 100kbit to 1tbit; `ringleader lab cut` lets nothing through"
        faults.append(Fault(where=option, what=f"{word} is out of range", hint=hint))
    return rate


def _delay(word: str | None, faults: list[Fault]) -> float | None:
    if word is None:
        return None
    try:
        seconds = parse_latency(word)
    except ValueError as error:
        faults.append(Fault(where="--delay", what=str(error), hint="for example 200us or 1ms"))
        return None
    if seconds > 10:
        faults.append(Fault(where="--delay", what=f"{word} is too long", hint="use up to 10s"))
    return seconds


def slow_steps(spec: LabSpec, number: int, limit: SlowLink | None) -> list[Step]:
    """Return the steps that limit a host's link; of ``None`` those that give it the rates of the lab back.

    What reaches the host is shaped at the switch's end of its cable, what it sends at its own end.
    """
    ends = (
        (("tc",), spec.link(number), limit and limit.into),
        (("tc", "-n", spec.namespace(number)), "eth0", limit and limit.out_of),
    )
    both = limit is not None and limit.into is None and limit.out_of is None
    steps: list[Step] = []
    for tc, device, rate in ends:
        if limit is None or rate is not None or both:
            delay = limit.delay if limit and limit.delay is not None else spec.latency
            slowed = replace(spec, bandwidth=rate or spec.bandwidth, latency=delay)
            # A root of another kind takes an earlier delay along: `replace` with the same kind would keep it.
            fresh = (*tc, "qdisc", "replace", "dev", device, "root", "handle", "3:", "pfifo")
            steps += [Command(argv=argv) for argv in (fresh, *shaping(slowed, tc, device))]
    return steps
