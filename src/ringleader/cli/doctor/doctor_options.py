"""The options of ``ringleader doctor``, as they were written, and which of them go together."""

from __future__ import annotations

from dataclasses import dataclass, field

import click

from ringleader.cli.json_output import JSON_OPTIONS, JsonOptions
from ringleader.cli.options.host_options import HOST_OPTIONS, HostOptions
from ringleader.cli.options.kubernetes_options import CLUSTER_OPTIONS, ClusterOptions
from ringleader.cli.options.option_checks import FiniteRange
from ringleader.cli.options.rdma_options import RDMA_OPTIONS
from ringleader.cli.typed_command import REPLACE, Option
from ringleader.errors import Fault

PLACES = ("local", "ssh", "lab", "kubernetes")


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """Options of ``--on kubernetes``."""

    nodes: str | None = None
    pod_image: str | None = None
    rdma: str | None = None
    rdma_resource: str | None = None
    rdma_count: str | None = None
    rdma_network: tuple[str, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """The options, as they were written."""

    image: bool = False
    sbom: str | None = None
    verbose: bool = False
    facts: bool = False
    facts_from: tuple[str, ...] = ()
    expect: str | None = None
    write_expect: str | None = None
    force: bool = False
    active: bool = False
    active_seconds: float = 30
    timeout: float = 300
    json: JsonOptions = field(default_factory=JsonOptions)
    hosts: HostOptions = field(default_factory=HostOptions)
    nodes: NodeOptions = field(default_factory=NodeOptions)
    cluster: ClusterOptions = field(default_factory=ClusterOptions)

    @property
    def on_kubernetes(self) -> bool:
        """Whether nodes of a cluster are meant."""
        return self.hosts.on == "kubernetes"

    @property
    def names_hosts(self) -> bool:
        """Whether other hosts than this one are meant."""
        where = self.hosts
        named = bool(where.hosts) or where.hostfile is not None or where.wants_lab
        return named or where.on == "ssh"

    def faults(self) -> list[Fault]:
        """Return what is wrong with options that exclude each other."""
        sources = {
            "--image": self.image,
            "--facts-from": bool(self.facts_from),
            "-H, --hostfile, --lab": self.names_hosts,
            "--on kubernetes": self.on_kubernetes,
        }
        given = [word for word, is_given in sources.items() if is_given]
        found = []
        if len(given) > 1:
            what = "each of them says what is judged"
            found.append(Fault(where=" and ".join(given), what=what, hint="leave one of them out"))
        if self.image:
            rest = {"--facts": self.facts, "--expect": self.expect, "--write-expect": self.write_expect}
            rest["--active"] = self.active
            found += [
                Fault(where=f"{word} with --image", what="--image tests an image, and reads no facts")
                for word, value in rest.items()
                if value
            ]
        if self.active:
            others = {
                "--facts-from": self.facts_from,
                "--facts": self.facts,
                "--write-expect": self.write_expect,
            }
            found += [
                Fault(
                    where=f"--active and {word}", what="with that nothing is measured", hint="leave one out"
                )
                for word, value in others.items()
                if value
            ]
        if self.hosts.on not in (None, *PLACES):
            what, hint = f"{self.hosts.on!r} is unknown", f"use one of {', '.join(PLACES)}"
            found.append(Fault(where="--on", what=what, hint=hint))
        found += self._misplaced()
        if self.sbom == "-" and self.image:
            found.append(Fault(where="--sbom -", what="with --image both would be standard output"))
        if self.force and self.write_expect is None:
            found.append(Fault(where="--replace", what="means nothing without --write-expect"))
        return found

    def _misplaced(self) -> list[Fault]:
        """Return options that mean nothing on a cluster, or only there."""
        if self.on_kubernetes:
            here = {"--facts": self.facts, "--active": self.active, "--write-expect": self.write_expect}
            what, hint, given = "means nothing with --on kubernetes", "leave it out", here
        else:
            own = {option.name: option for option in NODE_OPTIONS}
            there = {**vars(self.nodes), **vars(self.cluster)}
            given = {max(own[name].opts, key=len): value for name, value in there.items() if name in own}
            what, hint = "is for nodes of a cluster", "add --on kubernetes, or leave it out"
        return [Fault(where=word, what=what, hint=hint) for word, value in given.items() if value]


_RDMA = ("rdma", "rdma_resource", "rdma_count", "rdma_network")
NODE_OPTIONS: tuple[Option, ...] = (
    Option(
        ["--nodes"],
        metavar="LABEL[=VALUE]",
        help="With --on kubernetes: nodes that have this label. [default: all nodes]",
    ),
    Option(
        ["--pod-image"],
        metavar="IMAGE",
        help="With --on kubernetes: read facts on each node by a Pod of this image, which has Ringleader.",
    ),
    *(option for option in RDMA_OPTIONS if option.name in _RDMA),
    Option(["--dry-run"], is_flag=True, help="With --on kubernetes: print the Pods as YAML, and stop."),
    *CLUSTER_OPTIONS,
)
_ON = Option(
    ["--on"],
    metavar="local|ssh|lab|kubernetes",
    help="Where; local, ssh and lab follow from the other options. kubernetes: the nodes of a cluster.",
)
_OWN = (
    Option(["-v", "--verbose"], is_flag=True, help="Show also what passed and what could not be judged."),
    Option(["--facts"], is_flag=True, help="Print what was read, as JSON, and judge nothing."),
    Option(
        ["--facts-from"],
        multiple=True,
        metavar="FILE",
        help="Judge facts that --facts has printed, here or elsewhere; several files are compared.",
    ),
    Option(
        ["--expect"],
        metavar="FILE",
        help="Hold every host against this profile: what it must have.",
    ),
    Option(
        ["--write-expect"],
        metavar="FILE",
        help="Write a profile of this host, or of the first of several.",
    ),
    Option([*REPLACE, "force"], is_flag=True, help="Let --write-expect replace a file."),
    Option(
        ["--active"],
        is_flag=True,
        help="Measure, too: rates and latencies between the hosts, and how fast their ranks compute.",
    ),
    Option(
        ["--active-seconds"],
        type=FiniteRange(min=0, min_open=True),
        default=30,
        show_default=True,
        metavar="SECONDS",
        help="What the measurements of --active may take together.",
    ),
    Option(
        ["--image"],
        is_flag=True,
        help="Test the image that this container was made of, or this machine: load and start things.",
    ),
    Option(
        ["--sbom"],
        metavar="FILE",
        help="Write the list of installed packages, CycloneDX JSON; - prints it. Alone it starts nothing.",
    ),
    Option(
        ["--timeout"],
        type=FiniteRange(min=0, min_open=True),
        default=300,
        show_default=True,
        metavar="SECONDS",
        help="What everything may take together.",
    ),
    *JSON_OPTIONS,
)
DOCTOR_OPTIONS: tuple[click.Parameter, ...] = (
    *_OWN,
    *(_ON if option.name == "on" else option for option in HOST_OPTIONS),
    *NODE_OPTIONS,
)
EVERYDAY = (
    *(
        "verbose",
        "facts",
        "facts_from",
        "expect",
        "write_expect",
        "force",
        "active",
        "image",
        "sbom",
        "timeout",
    ),
    *("json", "json_file", "hosts", "hostfile", "lab", "lab_name", "on"),
    *("nodes", "pod_image", "rdma", "dry_run", "namespace"),
)
"""Options of the short help."""
