"""``ringleader doctor``: what hosts have for jobs, and with ``--image`` what an image is worth.

`judged_hosts` says how it is shown. Longer than others: half of it is the options, each with its help.
"""

from __future__ import annotations

import os
import random
import string
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringleader.cli import interrupts
from ringleader.cli.doctor import stored_facts
from ringleader.cli.kubernetes.connection import Connection, needs_kubernetes, with_cluster
from ringleader.cli.options.host_options import PLACES, HostOptions, allocation_text, overridden
from ringleader.cli.options.kubernetes_options import ClusterOptions
from ringleader.cli.options.option_checks import Faults, unwritable, write_text
from ringleader.cli.options.rank_options import RankOptions
from ringleader.cli.output import JsonOptions, Result, result_to, show
from ringleader.cli.run.command import check_ssh_files, read_job
from ringleader.cli.terminal_progress import ProgressLine, shown_while
from ringleader.cli.typed_command import REPLACE, Command, misplaced
from ringleader.doctor.hosts_reading import HostsReading
from ringleader.errors import Fault, ProbeError, RefusedError, RingleaderError, refuse
from ringleader.kubernetes.jobs.pod_options import NicOptions
from ringleader.option_fields import SECONDS, flag, group, many, names_of, option, spellings_set
from ringleader.plan.batch_system import find_allocation, nested_launch
from ringleader.plan.job import Job, check
from ringleader.text_files import read_text

if TYPE_CHECKING:
    from ringleader.doctor.active_tests import ActiveResults
    from ringleader.fabric.cluster_facts import ClusterFacts
    from ringleader.kubernetes.rdma.request import NicAllocation


_ON = {
    "metavar": "local|ssh|lab|kubernetes",
    "choices": (*PLACES, "kubernetes"),
    "hint": "use local, ssh, lab, kubernetes; in Pods: ringleader run --on kubernetes … -- ringleader doctor",
    "help": "What to check; kubernetes: the nodes of a cluster. [default: inferred from other options]",
}
_ONE_EACH = "As in torchrun; `doctor` starts one process on each host."


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """Options of ``--on kubernetes``."""

    nodes: str | None = option(
        "With --on kubernetes: only nodes with this label. [default: all nodes]", metavar="LABEL[=VALUE]"
    )
    pod_image: str | None = option(
        "With --on kubernetes: collect facts by running a Pod with this image on each node. The image must "
        "contain Ringleader.",
        metavar="IMAGE",
    )
    nics: NicOptions = group(NicOptions, of="nodes")
    dry_run: bool = flag("With --on kubernetes: print the Pods as YAML, and stop.")
    cluster: ClusterOptions = group(ClusterOptions)


EXCLUSIVE = {
    "image": ("facts expect write_expect active since", "{} with --image", "--image reads no facts"),
    "active": ("facts facts_from write_expect", "--active and {}", "with that nothing is measured"),
    "since": ("facts write_expect", "--since and {}", "with that nothing is judged"),
}
"""An option → others that it excludes, and the fault's place and text."""


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """The options of ``doctor``."""

    verbose: bool = flag("Also show checks that passed or were skipped.", "-v", "--verbose")
    facts: bool = flag("Print the facts as JSON, without checking them.")
    facts_from: tuple[str, ...] = many(
        "Check facts that --facts printed, here or elsewhere; several hosts are compared.", metavar="FILE"
    )
    since: str | None = option(
        "Check how much the error counters of ports and interfaces grew since FILE (from --facts on the same "
        "hosts).",
        metavar="FILE",
    )
    expect: str | None = option(
        "Check every host against the requirements in this file (see --write-expect).", metavar="FILE"
    )
    write_expect: str | None = option(
        "Write the requirements for --expect from this host, or from the first of several.", metavar="FILE"
    )
    replace: bool = flag("Overwrite the file of --write-expect.", **REPLACE)
    active: bool = flag(
        "Also measure rates and latencies between the hosts, and how fast their ranks compute."
    )
    active_seconds: float = option(
        "Time limit for the measurements of --active.",
        default=30,
        **SECONDS,
    )
    active_port: str | None = option(
        "With --active: measure only this RDMA port. [default: every active port]", metavar="mlx5_0[:1]"
    )
    own_faults: bool = flag("Say only whether this node has a fault, as in a Pod with --check.", hidden=True)
    image: bool = flag("Test the container (or machine) that this runs in: load libraries, start programs.")
    sbom: str | None = option(
        "Write a CycloneDX SBOM of the installed packages (`-` for standard output). Unless --image is "
        "given, no checks are run.",
        metavar="FILE",
    )
    timeout: float = option("Time limit for everything.", default=300, **SECONDS)
    json: JsonOptions = group(JsonOptions)
    hosts: HostOptions = group(HostOptions, changed={"on": _ON, "nproc_per_node": _ONE_EACH})
    job: Job = group(Job, of="hosts")
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
        for asked, (others, where, what) in EXCLUSIVE.items():
            words = spellings_set(self, others) if getattr(self, asked) else []
            found += [Fault(where=where.format(one), what=what, hint="leave one out") for one in words]
        for word, text, hint in (
            ("--since", self.since, "name a file that --facts has printed"),
            ("--active-port", self.active_port, "name a port: mlx5_0:1"),
        ):
            if text == "":
                found.append(Fault(where=word, what="is empty", hint=hint))
        if self.active_port is not None and not self.active:
            found.append(Fault(where="--active-port", what="means nothing without --active"))
        if self.on_kubernetes:
            what, hint = "means nothing with --on kubernetes", "leave it out"
            words = spellings_set(self, "facts write_expect since")
            if self.active:
                hint = (
                    "to measure between Pods: ringleader run --on kubernetes … -- ringleader doctor --active"
                )
                found.append(Fault(where="--active", what=what, hint=hint))
                hint = "leave it out"
        else:
            what, hint = "is for nodes of a cluster", "add --on kubernetes, or leave it out"
            words = spellings_set(self.nodes)
        found += [Fault(where=word, what=what, hint=hint) for word in words]
        if self.sbom == "-" and self.image:
            found.append(Fault(where="--sbom -", what="with --image both would be standard output"))
        if self.replace and self.write_expect is None:
            found.append(Fault(where="--replace", what="means nothing without --write-expect"))
        return found


def job_on_hosts(asked: Job, where: HostOptions, *, environ: Mapping[str, str]) -> Job:
    """Return a job on the hosts that are meant; its command is still to come.

    It runs in ``/``, which every host has: the caller's directory need not exist there, nor here.
    Raises RequestError with all faults.
    """
    named = replace(asked, command=("true",))
    job, _ = read_job(named, RankOptions(), where, environ=environ, here="/")
    check_ssh_files(check(job))
    return job


def measured_hosts(options: DoctorOptions, read: HostsReading) -> ActiveResults:
    """Measure between the hosts that were read, or on this machine."""
    where = options.hosts
    names_hosts = len(read.facts) > 1 or bool(where.hosts or where.hostfile or where.wants_lab)
    where = where if names_hosts else replace(where, on="local")
    job = job_on_hosts(options.job, where, environ=os.environ)
    job = replace(job, hosts=tuple(host for host in job.hosts if host.name in read.facts))
    with interrupts.held():
        from ringleader.doctor.active_tests import measure_hosts
    line = ProgressLine()
    try:
        return measure_hosts(
            job,
            facts=read.facts,
            environ=os.environ,
            seconds=min(options.active_seconds, options.timeout),
            progress=line.show,
            ranks_per_host=ranks_at_once(read),
            port=options.active_port or "",
            program_seconds=options.timeout,
        )
    finally:
        line.clear()


def ranks_at_once(read: HostsReading) -> int:
    """Return how many ranks of a host compute at once: of one host all that it takes, else one.

    Several hosts may share a machine, as in a lab, and would measure each other.
    """
    if len(read.facts) != 1:
        return 1
    (facts,) = read.facts.values()
    return len(facts.gpus) or max(1, facts.usable_cpus)


COLUMN = 100
"""Widest text in a column of the table."""


def check_image(seconds: float, json: JsonOptions) -> int:
    """Run every check within ``seconds``, show what came of it; return the exit code."""
    from ringleader.doctor.image_checks import document_of, judge
    from ringleader.doctor.image_inspection import collect
    from ringleader.fabric.check_result import Verdict

    line = ProgressLine(prefix="")
    facts = collect(environ=os.environ, seconds=seconds, progress=line.show)
    line.clear()
    found = judge(facts)
    checks = [document_of(one) for one in found]
    image = facts.manifest.get("name") if facts.manifest else None
    is_well = all(one.verdict is not Verdict.FAIL for one in found)
    values: dict[str, Any] = {"image": image, "ok": is_well, "checks": checks}
    show(json, values, lambda: f"{table_of(checks)}\n")
    return 0 if is_well else 3


def table_of(checks: Sequence[Mapping[str, str]]) -> str:
    """Return the verdicts as a table for people."""
    from tabulate import tabulate

    rows = []
    for one in checks:
        words = f"{one['what']}\n→ {one['do']}" if one.get("do") else one["what"]
        rows.append((one["id"], one["level"], words))
    return str(tabulate(rows, headers=("check", "", "what"), maxcolwidths=[None, None, COLUMN]))


IMAGE_MANIFEST = Path("/usr/share/ringleader/image.json")
"""Where an image says what it has (``images.recipe.RECORD``)."""


_LETTERS = string.ascii_lowercase + string.digits
LEAST_SECONDS = 5.0
"""What is kept of the time for looking at the nodes and for removing the Pods."""


def allocation_of(options: NodeOptions) -> NicAllocation:
    """Return the NICs that each Pod gets. Raises RequestError with every fault."""
    with needs_kubernetes(), interrupts.held():
        from ringleader.cli.kubernetes.job_from_options import allocation
        from ringleader.kubernetes.rdma.request import NicAllocation
        from ringleader.render.rdma_profiles import PROFILES
    faults = Faults()
    found = allocation(options.nics, gpus=0, asked=("memory",), shm_size="", faults=faults)
    if found is not None and found.makes_template and options.pod_image is not None:
        faults.add("--rdma dra with --pod-image", "a claim needs its own template", "leave one of them out")
    refuse(faults.found)
    return found if found is not None else NicAllocation(profile=PROFILES["none"])


def check_nodes(options: DoctorOptions, result: Result) -> int:
    """Judge the nodes, and where an image is given the facts that Pods read there; return the exit code."""
    nodes = allocation_of(options.nodes)
    profile = stored_facts.read_profile(options.expect, read_text) if options.expect is not None else None
    with interrupts.held():
        from ringleader.cli.doctor.judged_hosts import show_judgement
        from ringleader.doctor.judgement import judge
        from ringleader.doctor.kubernetes_nodes import needs_of
    line = ProgressLine()
    try:
        cluster, read = with_cluster(
            options.nodes.cluster, lambda connection: _read(connection, options, nodes, line)
        )
    finally:
        line.clear()
    if options.nodes.dry_run:
        return 0
    if options.nodes.pod_image is None:
        hint = "--pod-image IMAGE, with Ringleader in it, reads facts on each node"
        print(f"ringleader: only what the API server knows is judged: {hint}", file=sys.stderr)
    needs = needs_of(nodes)
    judged = judge(read.facts, faults=read.faults, profile=profile, cluster=(cluster, needs))
    return show_judgement(judged, read, result, verbose=options.verbose)


async def _read(
    connection: Connection, options: DoctorOptions, nodes: NicAllocation, line: ProgressLine
) -> tuple[ClusterFacts, HostsReading]:
    with needs_kubernetes(), interrupts.held():
        from ringleader.doctor.kubernetes_nodes import read_cluster
        from ringleader.doctor.kubernetes_reading import PodReading, facts_pod
    found = await read_cluster(
        connection.cluster,
        namespace=connection.namespace,
        selector=options.nodes.nodes or "",
        networks=nodes.networks,
    )
    seconds = max(options.timeout - LEAST_SECONDS, LEAST_SECONDS)
    run = "RUN" if options.nodes.dry_run else "".join(random.SystemRandom().choices(_LETTERS, k=6))
    pods = {
        node.name: facts_pod(
            node,
            index=index,
            run=run.lower(),
            namespace=connection.namespace,
            image=options.nodes.pod_image or "IMAGE",
            allocation=nodes,
            seconds=seconds,
        )
        for index, node in enumerate(found.nodes)
    }
    if options.nodes.dry_run:
        from ringleader.kubernetes.mpijob.yaml_text import text_of

        sys.stdout.write(text_of(pods.values()))
        return found, HostsReading(facts={})
    if options.nodes.pod_image is None:
        return found, HostsReading(facts={})
    reading = PodReading(connection.cluster, namespace=connection.namespace, run=run, tell=line.show)
    return found, await reading.read(pods, seconds)


@Command.of(
    "doctor",
    DoctorOptions,
    everyday=(
        "verbose facts facts_from since expect write_expect replace active image sbom timeout json json_file "
        "hosts hostfile lab lab_name on nodes pod_image rdma dry_run namespace"
    ),
    overridden=overridden,
)
def command(options: DoctorOptions) -> int:
    """Check one or several hosts, and explain what to fix.

    \b
      ringleader doctor
      ringleader doctor -H node1,node2
      ringleader doctor --write-expect required.toml
      ringleader doctor --hostfile hosts.txt --expect required.toml --active
      ringleader doctor --on kubernetes --nodes pool=gpu --rdma shared
      ringleader doctor --facts > before.json
      ringleader doctor --since before.json
      ringleader doctor --image

    Without hosts, it reads what a rank on this host would find (NICs, RDMA, GPUs, limits, MPI, frameworks,
    ssh) and starts nothing. With hosts, or in an allocation of Slurm, PBS or LSF, it starts one process on
    each host and compares the results. On Kubernetes, it checks the nodes; with --pod-image, it also starts a
    Pod on each. --image tests the container that it runs in: it loads libraries, starts an sshd on a free
    loopback port with temporary keys, and starts two ranks over that sshd. If a check fails, the exit code is
    3; warnings don't change it. docs/reference/checks.md lists the checks and their limits.
    """
    if options.own_faults:
        from ringleader.doctor.pod_gate import checked_node

        is_fit, text = checked_node(os.environ)
        print(text, flush=True)
        return 0 if is_fit else RefusedError.exit_code
    options = in_allocation(options, os.environ)
    faults = [*options.faults(), *without_hosts(options), *unwritable("--sbom", options.sbom)]
    refuse(faults)
    if options.sbom:
        from ringleader.doctor.sbom import sbom_text

        write_text(options.sbom, sbom_text())
        if not options.image:
            return 0
    if options.image:
        return check_image(options.timeout, options.json)
    with result_to(options.json) as result:
        if options.on_kubernetes:
            return check_nodes(options, result)
        return check_hosts(options, result)


def in_allocation(options: DoctorOptions, environ: Mapping[str, str]) -> DoctorOptions:
    """Return options that mean the nodes of the surrounding allocation, where nothing says what is judged.

    Of several copies (``srun ringleader doctor --facts``) each reads its own host.
    """
    where = options.hosts
    is_said = options.image or options.sbom or options.facts_from or options.names_hosts or where.on
    if is_said or where.no_allocation or nested_launch(environ):
        return options
    allocation = find_allocation(environ, read_text)
    if allocation is None:
        return options
    if not allocation.faults:
        print(f"ringleader: {allocation_text(allocation)}", file=sys.stderr)
    return replace(options, hosts=replace(where, on="ssh"))


def without_hosts(options: DoctorOptions) -> list[Fault]:
    """Return the options about starting ranks that were given although none is started."""
    if options.names_hosts or options.active:
        return []
    naming = {"hosts", "hostfile", "lab", "lab_name", "on", "no_allocation", "start_timeout", "kernel_log"}
    rest = (names_of(HostOptions) | names_of(Job, of="hosts")) - naming
    hint = "name hosts (-H, --hostfile, --lab), or leave it out"
    return misplaced(rest.__contains__, "means nothing where no rank is started", hint)


def check_hosts(options: DoctorOptions, result: Result) -> int:
    """Read hosts, and do with their facts what was asked for; return the exit code."""
    if options.write_expect is not None:
        stored_facts.check_new(options.write_expect, force=options.replace)
    profile = stored_facts.read_profile(options.expect, read_text) if options.expect is not None else None
    read = reading(options)
    for text in read.warnings:
        print(f"ringleader: {text}", file=sys.stderr)
    if options.facts:
        return print_facts(read, result)
    if not read.facts and (options.write_expect is not None or options.active):
        raise RefusedError(read.faults)
    if options.write_expect is not None:
        stored_facts.write_profile(options.write_expect, next(iter(read.facts.values())))
        return 0
    earlier = stored_facts.read_earlier(options.since, read_text, read.facts) if options.since else {}
    measured = measured_hosts(options, read) if options.active else None
    with interrupts.held():
        from ringleader.cli.doctor.judged_hosts import show_judgement
        from ringleader.doctor.judgement import judge, since

    if options.active:
        # What counters grew while the links were used says more than what they hold since the host started.
        later = reading_again(options, read, measured)
        earlier = earlier or {host: one for host, one in read.facts.items() if host in later.facts}
        read = replace(read, facts={**read.facts, **later.facts})
    facts = {host: since(one, earlier[host]) if host in earlier else one for host, one in read.facts.items()}
    judged = judge(facts, faults=read.faults, profile=profile, measured=measured)
    return show_judgement(judged, read, result, verbose=options.verbose)


def reading_again(options: DoctorOptions, read: HostsReading, measured: ActiveResults | None) -> HostsReading:
    """Read the hosts that were measured once more; of none where that fails.

    What was measured is worth more than how counters grew.
    """
    if measured is not None and measured.failure:
        return HostsReading(facts={})
    try:
        return reading(options, again=read)
    except RingleaderError:
        return HostsReading(facts={})


def reading(options: DoctorOptions, *, again: HostsReading | None = None) -> HostsReading:
    """Read the facts of the hosts that are meant: of files, of other hosts, of this one.

    ``again``: an earlier reading; hosts that did not answer then are not asked.
    """
    if options.facts_from:
        return HostsReading(facts=stored_facts.read_facts(options.facts_from, read_text))
    if options.names_hosts:
        job = job_on_hosts(options.job, options.hosts, environ=os.environ)
        if again is not None:
            job = replace(job, hosts=tuple(host for host in job.hosts if host.name in again.facts))
        with interrupts.held():
            from ringleader.doctor.facts_job import read_hosts
        line = ProgressLine()
        try:
            return read_hosts(job, environ=os.environ, seconds=options.timeout, progress=line.show)
        except ProbeError as error:
            return HostsReading(facts={}, faults=error.faults)
        finally:
            line.clear()
    with interrupts.held():
        from ringleader.fabric.readers.host import SECONDS, read_host

    with shown_while("reading this host"):
        seconds, log = min(SECONDS * options.job.patience, options.timeout), options.job.kernel_log or ""
        facts = read_host(environ=os.environ, seconds=seconds, log=log)
    if IMAGE_MANIFEST.exists() and again is None:
        print("ringleader: this is an image of Ringleader: doctor --image tests it", file=sys.stderr)
    return HostsReading(facts={facts.hostname or "this host": facts})


def print_facts(read: HostsReading, result: Result) -> int:
    """Print facts as JSON; hosts that could not be read are listed on standard error."""
    result.write(stored_facts.facts_document(read.facts))
    sys.stdout.write(stored_facts.facts_text(read.facts))
    for fault in read.faults:
        print(f"ringleader: {fault}", file=sys.stderr)
    return 3 if read.faults else 0
