"""Annotations of an MPIJob through which a user asks for what its v2beta1 fields cannot say."""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIX = "ringleader/"

SPAWN = "ringleader/spawn"
"""How mpirun in the launcher starts its daemons in the workers."""
SPAWN_SSH = "ssh"
"""By ssh, as v2beta1 does it: the image has sshd. The default."""
SPAWN_EXEC = "exec"
"""By exec through the Kubernetes API, as versions before v2beta1 did it: the image needs a shell only."""

SSH_LAYOUT = "ringleader/ssh-layout"
"""Which keys lie where the Pods look for them."""
SSH_LAYOUT_SEPARATE = "separate"
"""The private key in the launcher only, the workers' own host key in the workers only. The default."""
SSH_LAYOUT_REFERENCE = "reference"
"""One private key in every Pod, as the reference controller mounts it: for images whose sshd takes it as
its host key too."""

SSH_KEY_TYPE = "ringleader/ssh-key-type"
"""Type of the keys; `ed25519` unless said otherwise. `rsa` for images with an ssh of before 2014."""

ON_WORKER_FAILURE = "ringleader/on-worker-failure"
"""What becomes of a job one of whose workers has failed."""
REPLACE = "replace"
"""The worker is made anew, so that the launcher's next attempt finds it. The default."""
RESTART = "restart"
"""All Pods are made anew and the job starts from its beginning."""
FAIL = "fail"
"""The job has failed."""
KEEP = "keep"
"""Nothing: the failed Pod stays, as under the reference controller."""

MIN_WORKERS = "ringleader/min-workers"
"""Makes a job elastic: it continues with fewer workers than `replicas`, down to this number, while some fail,
are evicted or scaled away (`kubectl scale mpijob`), and takes in those that come. The launcher is to be a
program that looks for its hosts by itself, for which `/etc/mpi/discover_hosts.sh` prints the workers that are
ready: it is not made to wait for them. Failed workers are made anew, as often as it takes unless
`ringleader/restart-limit` says otherwise."""
MAX_WORKERS = "ringleader/max-workers"
"""Largest `replicas` of an elastic job. Without it: any number."""

RESTART_LIMIT = "ringleader/restart-limit"
"""How often workers are made anew, or the job restarted, before it has failed. Without it:
`runPolicy.backoffLimit`, or 6."""

WAIT_FOR_WORKERS = "ringleader/wait-for-workers"
"""What the launcher waits for before mpirun is called."""
WAIT_ANSWER = "answer"
"""Every worker greets as an sshd, or with exec is ready. The default."""
WAIT_ADDRESS = "address"
"""Every worker has an address, or with exec runs: nothing is sent to it. For meshes whose proxies refuse what
comes without their certificate (strict mTLS), and for networks that keep init containers out."""
WAIT_OFF = "off"
"""Nothing."""

WAIT_LIMIT = "ringleader/wait-limit"
"""Seconds that a launcher waits for its workers at most, whatever they wait for. Without it workers that
have no address yet, because they are queued or pulled, are waited for as long as the job may live, and those
that have one and do not answer for as long as the operator allows: 900 s."""

CHECK = "ringleader/check"
"""Check that each Pod makes before its ranks may start. A Pod that refuses its node has failed:
`ringleader/on-worker-failure` decides what follows, and a new Pod gets another node."""
CHECK_QUICK = "quick"
"""Faults of the Pod's node, found in seconds by an init container of the same image, which needs
Ringleader: the kernel's log where the Pod can read it, GPUs' memory, RDMA ports."""
CHECK_CONTAINER = "ringleader-check"
"""Name of that init container."""
CHECK_REFUSED = 3
"""Its exit code where the node has a fault; any other one says that the check itself failed."""

GANG = "ringleader/gang"
"""Gang scheduler of this job: `none`, `volcano`, `kubernetes` (its own, from 1.37 on), or the name of a
scheduler with scheduler-plugins' coscheduling. Without it: what the operator was started with."""

RDMA = "ringleader/rdma-"
"""Beginning of the annotations for NICs."""

RDMA_PROFILE = "ringleader/rdma-profile"
"""Name of the way in which this cluster gives NICs to Pods: see the guide "A Pod that may use the NIC". The
workers get what belongs to it, and the launcher only where ranks run in it. With mpirun's ssh the profile's
variables do not reach the ranks by themselves: name them to mpirun (`-x`)."""

RDMA_RESOURCE = "ringleader/rdma-resource"
"""Extended resource of the NICs. Without it: the profile's."""

RDMA_COUNT = "ringleader/rdma-count"
"""NICs of each worker. Without it: as many as networks, or one."""

RDMA_NETWORK = "ringleader/rdma-network"
"""Networks of Multus, `NAME` or `NAMESPACE/NAME`, with commas between them: one for all NICs, or one for
each."""

RDMA_NODE_LABELS = "ringleader/rdma-node-labels"
"""Labels that the workers' nodes must have, `NAME=VALUE` with commas between them; `nfd` stands for those of
node-feature-discovery 0.13 and newer, `nfd-0.12` for its older ones."""

RDMA_CLAIM_TEMPLATE = "ringleader/rdma-claim-template"
"""ResourceClaimTemplate of a worker's GPUs and NICs in the job's namespace: the profile `dra` needs one."""

RDMA_SSH_PORT = "ringleader/rdma-ssh-port"
"""Port of the workers' sshd on the host's network. Without it: the profile's."""

RDMA_SPREAD = "ringleader/rdma-spread"
"""Where the workers may stand: `even` over the nodes, `apart` (never two on one), `none`. Without it: the
profile's."""

KNOWN: Mapping[str, tuple[str, ...]] = {
    SPAWN: (SPAWN_SSH, SPAWN_EXEC),
    SSH_LAYOUT: (SSH_LAYOUT_SEPARATE, SSH_LAYOUT_REFERENCE),
    SSH_KEY_TYPE: ("ed25519", "ecdsa", "rsa"),
    ON_WORKER_FAILURE: (REPLACE, RESTART, FAIL, KEEP),
    RESTART_LIMIT: (),
    MIN_WORKERS: (),
    MAX_WORKERS: (),
    WAIT_FOR_WORKERS: (WAIT_ANSWER, WAIT_ADDRESS, WAIT_OFF),
    WAIT_LIMIT: (),
    CHECK: (CHECK_QUICK,),
    GANG: (),
    RDMA_PROFILE: (),
    RDMA_RESOURCE: (),
    RDMA_COUNT: (),
    RDMA_NETWORK: (),
    RDMA_NODE_LABELS: (),
    RDMA_CLAIM_TEMPLATE: (),
    RDMA_SSH_PORT: (),
    RDMA_SPREAD: (),
}
"""Annotation → the values it may have; an empty tuple where any text will do."""

NUMBERS: Mapping[str, tuple[str, str, str]] = {
    RESTART_LIMIT: (r"[0-9]{1,9}", "a number", 'an integer in quotes: "3"'),
    WAIT_LIMIT: (r"[1-9][0-9]{0,8}", "a number of seconds", 'above 0, in quotes: "3600"'),
    MIN_WORKERS: (r"[1-9][0-9]{0,5}", "a number of workers", 'from 1, in quotes: "3"'),
    MAX_WORKERS: (r"[1-9][0-9]{0,5}", "a number of workers", 'from 1, in quotes: "3"'),
}
"""Annotation → what its value looks like, what it is called, and how to write it."""


def number_in(notes: Mapping[str, str], name: str) -> int | None:
    """Return the number that an annotation gives; ``None`` where it is missing or wrong."""
    text = notes.get(name)
    is_right = isinstance(text, str) and re.fullmatch(NUMBERS[name][0], text)
    return int(str(text)) if is_right else None
