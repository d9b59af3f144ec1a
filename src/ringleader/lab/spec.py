"""What was asked for: a lab's name, hosts, addresses and rates, checked; ``rootfs`` has their files. Pure."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from ringleader.errors import Fault, RequestError, refuse
from ringleader.lab.rootfs import Rootfs, rootfs_from_json
from ringleader.option_fields import WrongValueError, faults_of_values, flag, option

DEFAULT_NAME = "lab"
MAX_HOSTS = 250
MAX_NAME = 8
"""Longest name: the kernel gives a link 15 characters, and ``rl-NAME-250`` must fit."""

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:bit|bits|bps)(?:/s)?", re.IGNORECASE)
_SCALE = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_LATENCY = re.compile(r"(\d+(?:\.\d+)?)\s*(us|µs|ms|s)", re.IGNORECASE)
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def parse_rate(text: str) -> int:
    """Return bit/s for ``8gbit``, ``500mbit``, ``25Gbit/s``, ``1.5 Gbps``; ValueError where it is none."""
    match = _RATE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a rate")
    return round(float(match[1]) * _SCALE[match[2].lower()])


def format_rate(rate: int) -> str:
    """Write bit/s as tc reads them and people do: ``8gbit``, ``500mbit``, ``1500kbit``."""
    for unit, scale in reversed(_SCALE.items()):
        if rate >= scale and rate % scale == 0:
            return f"{rate // scale}{unit}bit"
    return f"{rate}bit"


def parse_latency(text: str) -> float:
    """Return seconds for ``200us``, ``1ms``, ``0.5s`` or a bare ``0``; ValueError where it is none."""
    if text.strip() == "0":
        return 0.0
    match = _LATENCY.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a time")
    return float(match[1]) * _SECONDS[match[2].lower()]


def rate_option(least: int, *, example: str, bounds: str) -> Callable[[str], int]:
    """Return what reads an option's rate, from ``least`` to 1 Tbit/s; the words are those of its messages."""

    def read(text: str) -> int:
        try:
            rate = parse_rate(text)
        except ValueError as error:
            raise WrongValueError(str(error), f"for example {example}") from None
        if not least <= rate <= 10**12:
            raise WrongValueError(f"{text} is out of range", bounds)
        return rate

    return read


def delay_of_option(text: str) -> float:
    """Return the seconds that an option says; WrongValueError where they are none, or more than 10."""
    try:
        seconds = parse_latency(text)
    except ValueError as error:
        raise WrongValueError(str(error), "for example 200us or 1ms") from None
    if seconds > 10:
        raise WrongValueError(f"{text} is too long", "use up to 10s")
    return seconds


@dataclass(frozen=True, kw_only=True)
class LabSpec:
    """A complete request for a lab, with options of ``ringleader lab up``."""

    name: str = DEFAULT_NAME
    """Tells labs on one machine apart; part of every name that the lab leaves in the kernel."""
    hosts: int = option("Number of hosts, h1 … hN.", default=4, least=1, most=MAX_HOSTS, unit="hosts")
    slots: int = option("Slots per host, for `run --lab`.", default=2, least=1, most=1024, unit="slots")
    """Ranks per host, as the hostfile says."""
    bandwidth: int = option(
        "Rate of each host's link in each direction.  [default: 8gbit]",
        default=8_000_000_000,
        metavar="RATE",
        read=rate_option(10**6, example="8gbit or 500mbit", bounds="use 1mbit to 1tbit"),
    )
    """In bit/s on the wire."""
    latency: float = option(
        "Delay of each frame in each direction: 200us, 1ms.  [default: 0]",
        default=0.0,
        metavar="TIME",
        read=delay_of_option,
    )
    """In seconds; needs netem in the kernel."""
    ssh_port: int = option(
        "Port of sshd on each host.", default=33, least=1, most=65535, wrong="{} is not a port number"
    )
    subnet: str = "10.213.0.0/24"
    """IPv4 network of the lab: hosts count from its first address, the head has its last one."""
    private_tmp: bool = flag("Give each host its own empty /tmp.")
    """Otherwise it is the machine's, like a shared file system."""
    tree: Rootfs | None = None
    """Root file system of the hosts; ``None``: the machine's own."""
    kernel: str = ""
    """Directory with a kernel that has Soft-RoCE, which each host boots in an emulated machine; empty: hosts
    share the machine's kernel."""

    @property
    def start_seconds(self) -> float:
        """What the start of a host may take."""
        return 600.0 if self.kernel else 30.0

    @property
    def answer_seconds(self) -> float:
        """What an sshd may take to answer."""
        return 10.0 if self.kernel else 1.0

    @property
    def host_names(self) -> tuple[str, ...]:
        """``h1 … hN``; in other labs than the default one ``NAME-h1 … NAME-hN``: labs never clash."""
        prefix = "h" if self.name == DEFAULT_NAME else f"{self.name}-h"
        return tuple(f"{prefix}{number}" for number in range(1, self.hosts + 1))

    def address(self, number: int) -> str:
        """Address of host ``number`` (from 1)."""
        return str(ipaddress.IPv4Network(self.subnet)[number])

    @property
    def head_address(self) -> str:
        """The machine's own address in the lab: the last usable one."""
        return self.address(-2)

    @property
    def prefix_length(self) -> int:
        """Bits of the network part of an address."""
        return ipaddress.IPv4Network(self.subnet).prefixlen

    @property
    def bridge(self) -> str:
        """The switch that joins all hosts and the head."""
        return f"rl-{self.name}"

    def link(self, number: int) -> str:
        """The switch's end of the cable to host ``number``."""
        return f"rl-{self.name}-{number}"

    def namespace(self, number: int) -> str:
        """Network namespace of host ``number``."""
        return f"rl-{self.name}-h{number}"


def directory_of(name: str, root: str) -> str:
    """Return where a lab keeps its files."""
    return f"{root}/{name}"


def check_name(name: str, where: str = "--lab-name") -> None:
    """Raise RequestError unless ``name`` can be a lab's; every command that takes one calls this.

    ``where``: the option that gave it.
    """
    refuse(_name_faults(name, where))


def check(spec: LabSpec, *further: Fault) -> LabSpec:
    """Return a request that can be met; RequestError with every fault, ``further`` ones included."""
    refuse([*_name_faults(spec.name), *faults_of_values(spec), *_subnet_faults(spec), *further])
    return spec


def _name_faults(name: str, where: str = "--lab-name") -> list[Fault]:
    if re.fullmatch(rf"[a-z][a-z0-9]{{0,{MAX_NAME - 1}}}", name):
        return []
    hint = f"use 1 to {MAX_NAME} lower-case letters and digits, a letter first"
    return [Fault(where=where, what=f"{name!r} is not a name for a lab", hint=hint)]


def _subnet_faults(spec: LabSpec) -> list[Fault]:
    subnet, what = spec.subnet, ""
    try:
        network = ipaddress.IPv4Network(subnet)
        blocks = map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
        if not any(network.subnet_of(block) for block in blocks):
            what = f"{subnet} is not a private network"
        elif spec.hosts <= MAX_HOSTS and network.num_addresses < spec.hosts + 3:
            what = f"{subnet} has no room for {spec.hosts} hosts"
    except ValueError as error:
        what = str(error)
    return [Fault(where="--subnet", what=what, hint="for example 10.213.0.0/24")] if what else []


def free_subnet(taken: Iterable[str]) -> str:
    """Return the first of 10.213.0.0/24 … 10.213.255.0/24 that overlaps none of ``taken`` (CIDR texts)."""
    networks = [ipaddress.IPv4Network(text, strict=False) for text in taken]
    for third in range(256):
        candidate = ipaddress.IPv4Network(f"10.213.{third}.0/24")
        if not any(candidate.overlaps(network) for network in networks):
            return str(candidate)
    raise RequestError("all of 10.213.0.0/16 is in use", where="--subnet", hint="give a private /24 yourself")


def to_json(spec: LabSpec) -> str:
    """Return the lab's state file."""
    return json.dumps({"format": 1, "spec": asdict(spec)}, indent=2) + "\n"


def from_json(text: str) -> LabSpec:
    """Read a state file back; ValueError where it is none of ours."""
    try:
        content = json.loads(text)
        if content["format"] != 1:
            raise ValueError(f"format {content['format']}")
        return LabSpec(**content["spec"] | {"tree": rootfs_from_json(content["spec"].get("tree"))})
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(str(error)) from error
