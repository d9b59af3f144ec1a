"""``ringleader doctor --on kubernetes``: nodes of a cluster, and Pods that read facts on them."""

from __future__ import annotations

import random
import string
import sys

from ringleader.cli import interrupts
from ringleader.cli.doctor.command import DoctorOptions, NodeOptions
from ringleader.cli.doctor.stored_facts import read_profile
from ringleader.cli.kubernetes.connection import Connection, needs_kubernetes, with_cluster
from ringleader.cli.kubernetes.job_from_options import allocation
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.output import Result
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.doctor.hosts_reading import HostsReading
from ringleader.errors import refuse
from ringleader.fabric.cluster_facts import ClusterFacts
from ringleader.render.rdma.allocation import NicAllocation
from ringleader.render.rdma.profiles import PROFILES
from ringleader.text_files import read_text

_LETTERS = string.ascii_lowercase + string.digits
LEAST_SECONDS = 5.0
"""What is kept of the time for looking at the nodes and for removing the Pods."""


def allocation_of(options: NodeOptions) -> NicAllocation:
    """Return the NICs that each Pod gets. Raises RequestError with every fault."""
    faults = Faults()
    found = allocation(options.nics, gpus=0, asked=("memory",), shm_size="", faults=faults)
    if found is not None and found.makes_template and options.pod_image is not None:
        faults.add(
            "--rdma dra with --pod-image", "a claim needs a template of its own", "leave one of them out"
        )
    refuse(faults.found)
    return found if found is not None else NicAllocation(profile=PROFILES["none"])


def check_nodes(options: DoctorOptions, result: Result) -> int:
    """Judge the nodes, and where an image is given the facts that Pods read there; return the exit code."""
    nodes = allocation_of(options.nodes)
    profile = read_profile(options.expect, read_text) if options.expect is not None else None
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
        from ringleader.doctor.kubernetes_pods import facts_pod
        from ringleader.doctor.kubernetes_reading import PodReading
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
        from ringleader.mpijob.yaml_text import text_of

        sys.stdout.write(text_of(pods.values()))
        return found, HostsReading(facts={})
    if options.nodes.pod_image is None:
        return found, HostsReading(facts={})
    reading = PodReading(connection.cluster, namespace=connection.namespace, run=run, tell=line.show)
    return found, await reading.read(pods, seconds)
