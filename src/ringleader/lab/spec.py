"""What was asked for: a lab's name, hosts, addresses and rates; checked, all faults at once. Pure."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from ringleader.errors import Fault, RequestError
from ringleader.lab.rootfs import Rootfs, rootfs_from_json

DEFAULT_NAME = "lab"
MAX_HOSTS = 250
MAX_SLOTS = 1024
MAX_NAME = 8
"""Longest name: the kernel gives a link 15 characters, and ``rl-NAME-250`` must fit."""

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:bit|bits|bps)(?:/s)?", re.IGNORECASE)
_SCALE = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_LATENCY = re.compile(r"(\d+(?:\.\d+)?)\s*(us|µs|ms|s)", re.IGNORECASE)
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True, kw_only=True)
class LabSpec:
    """A complete request for a lab."""

    name: str = DEFAULT_NAME
    """Tells labs on one machine apart; part of every name that the lab leaves in the kernel."""
    hosts: int = 4
    slots: int = 2
    """Ranks per host, as the hostfile says."""
    bandwidth: int = 8_000_000_000
    """Rate of each host's link, each way, in bit/s on the wire."""
    latency: float = 0.0
    """Seconds added to each frame, each way; needs netem in the kernel."""
    ssh_port: int = 33
    subnet: str = "10.213.0.0/24"
    """IPv4 network of the lab: hosts count from its first address, the head has its last one."""
    private_tmp: bool = False
    """Give each host its own empty ``/tmp``; otherwise it is the machine's, like a shared file system."""
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
        return str(ipaddress.IPv4Network(self.subnet)[-2])

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


def parse_rate(text: str) -> int:
    """Return bit/s for ``8gbit``, ``500mbit``, ``25Gbit/s``, ``1.5 Gbps``; ValueError where it is none."""
    match = _RATE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a rate")
    return round(float(match[1]) * _SCALE[match[2].lower()])


def format_rate(rate: int) -> str:
    """Write bit/s as tc reads them and people do: ``8gbit``, ``500mbit``, ``1500kbit``."""
    for unit, scale in (("tbit", 10**12), ("gbit", 10**9), ("mbit", 10**6), ("kbit", 10**3)):
        if rate >= scale and rate % scale == 0:
            return f"{rate // scale}{unit}"
    return f"{rate}bit"


def parse_latency(text: str) -> float:
    """Return seconds for ``200us``, ``1ms``, ``0.5s`` or a bare ``0``; ValueError where it is none."""
    if text.strip() == "0":
        return 0.0
    match = _LATENCY.fullmatch(text.strip())
    if not match:
        raise ValueError(f"{text!r} is not a time")
    return float(match[1]) * _SECONDS[match[2].lower()]


def check_name(name: str, where: str = "--name") -> None:
    """Raise RequestError unless ``name`` can be a lab's; every command that takes one calls this.

    ``where``: the option that gave it.
    """
    if faults := _name_faults(name, where):
        raise RequestError(faults)


def spec_of(
    *,
    name: str,
    hosts: int,
    slots: int,
    bandwidth: str,
    latency: str,
    ssh_port: int,
    subnet: str,
    private_tmp: bool,
    tree: Rootfs | None = None,
    kernel: str = "",
    further: Iterable[Fault] = (),
) -> LabSpec:
    """Return the request that these words make; RequestError with every fault, ``further`` ones included."""
    faults = [*_name_faults(name), *_count_faults(hosts=hosts, slots=slots, ssh_port=ssh_port)]
    rate, seconds = 0, 0.0
    try:
        rate = parse_rate(bandwidth)
        if not 10**6 <= rate <= 10**12:
            faults.append(
                Fault(where="--bandwidth", what=f"{bandwidth} is out of range", hint="use 1mbit to 1tbit")
            )
    except ValueError as error:
        faults.append(Fault(where="--bandwidth", what=str(error), hint="for example 8gbit or 500mbit"))
    try:
        seconds = parse_latency(latency)
        if seconds > 10:
            faults.append(Fault(where="--latency", what=f"{latency} is too long", hint="use up to 10s"))
    except ValueError as error:
        faults.append(Fault(where="--latency", what=str(error), hint="for example 200us or 1ms"))
    faults += _subnet_faults(subnet, hosts)
    faults += further
    if faults:
        raise RequestError(faults)
    return LabSpec(
        name=name,
        hosts=hosts,
        slots=slots,
        bandwidth=rate,
        latency=seconds,
        ssh_port=ssh_port,
        subnet=subnet,
        private_tmp=private_tmp,
        tree=tree,
        kernel=kernel,
    )


def _name_faults(name: str, where: str = "--name") -> list[Fault]:
    if re.fullmatch(rf"[a-z][a-z0-9]{{0,{MAX_NAME - 1}}}", name):
        return []
    hint = f"use 1 to {MAX_NAME} lower-case letters and digits, a letter first"
    return [Fault(where=where, what=f"{name!r} is not a name for a lab", hint=hint)]


def _count_faults(*, hosts: int, slots: int, ssh_port: int) -> list[Fault]:
    counts = (
        ("--hosts", hosts, MAX_HOSTS, f"{hosts} hosts"),
        ("--slots", slots, MAX_SLOTS, f"{slots} slots"),
        ("--ssh-port", ssh_port, 65535, f"{ssh_port} is not a port number"),
    )
    return [
        Fault(where=option, what=what, hint=f"use 1 to {most}")
        for option, count, most, what in counts
        if not 1 <= count <= most
    ]


def _subnet_faults(subnet: str, hosts: int) -> list[Fault]:
    example = "for example 10.213.0.0/24"
    try:
        network = ipaddress.IPv4Network(subnet)
    except ValueError as error:
        return [Fault(where="--subnet", what=str(error), hint=example)]
    private = any(
        network.subnet_of(ipaddress.IPv4Network(block))
        for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
    )
    if not private:
        return [Fault(where="--subnet", what=f"{subnet} is not a private network", hint=example)]
    if hosts <= MAX_HOSTS and network.num_addresses < hosts + 3:
        return [Fault(where="--subnet", what=f"{subnet} has no room for {hosts} hosts", hint=example)]
    return []


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
