"""The options of ``ringleader doctor``, as they were written, and which of them go together."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.cli.json_output import JsonOptions
from ringleader.cli.options.host_options import PLACES, HostOptions
from ringleader.cli.options.kubernetes_options import ClusterOptions, NicOptions
from ringleader.cli.typed_command import REPLACE
from ringleader.errors import Fault
from ringleader.option_fields import SECONDS, flag, group, many, names_of, option
from ringleader.plan.job import Job

_ON = {
    "metavar": "local|ssh|lab|kubernetes",
    "choices": (*PLACES, "kubernetes"),
    "help": "Where; local, ssh and lab follow from the other options. kubernetes: the nodes of a cluster.",
}


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """Options of ``--on kubernetes``."""

    nodes: str | None = option(
        "With --on kubernetes: nodes that have this label. [default: all nodes]", metavar="LABEL[=VALUE]"
    )
    pod_image: str | None = option(
        "With --on kubernetes: read facts on each node by a Pod of this image, which has Ringleader.",
        metavar="IMAGE",
    )
    nics: NicOptions = group(NicOptions, where="nodes")
    dry_run: bool = flag("With --on kubernetes: print the Pods as YAML, and stop.")
    cluster: ClusterOptions = group(ClusterOptions)


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """The options of ``doctor``."""

    verbose: bool = flag("Show also what passed and what could not be judged.", "-v", "--verbose")
    facts: bool = flag("Print what was read, as JSON, and judge nothing.")
    facts_from: tuple[str, ...] = many(
        "Judge facts that --facts has printed, here or elsewhere; several files are compared.", metavar="FILE"
    )
    expect: str | None = option("Hold every host against this profile: what it must have.", metavar="FILE")
    write_expect: str | None = option(
        "Write a profile of this host, or of the first of several.", metavar="FILE"
    )
    force: bool = flag("Let --write-expect replace a file.", *REPLACE)
    active: bool = flag(
        "Measure, too: rates and latencies between the hosts, and how fast their ranks compute."
    )
    active_seconds: float = option(
        "What the measurements of --active may take together.",
        default=30,
        **SECONDS,
    )
    image: bool = flag(
        "Test the image that this container was made of, or this machine: load and start things."
    )
    sbom: str | None = option(
        "Write the list of installed packages, CycloneDX JSON; - prints it. Alone it starts nothing.",
        metavar="FILE",
    )
    timeout: float = option(
        "What everything may take together.",
        default=300,
        **SECONDS,
    )
    json: JsonOptions = group(JsonOptions)
    hosts: HostOptions = group(HostOptions, changed={"on": _ON})
    job: Job = group(Job, where="hosts")
    nodes: NodeOptions = group(NodeOptions)

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
        found = list(self.job.faults)
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
            there = vars(self.nodes) | vars(self.nodes.nics) | vars(self.nodes.cluster)
            own = names_of(NodeOptions)
            given = {f"--{name.replace('_', '-')}": there[name] for name in there if name in own}
            what, hint = "is for nodes of a cluster", "add --on kubernetes, or leave it out"
        return [
            Fault(where=word, what=what, hint=hint)
            for word, value in given.items()
            if value or (value == 0 and value is not False)  # 0 was given
        ]


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
