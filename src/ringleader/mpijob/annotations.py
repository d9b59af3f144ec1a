"""Annotations of an MPIJob through which a user asks for what its v2beta1 fields cannot say."""

from __future__ import annotations

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

RESTART_LIMIT = "ringleader/restart-limit"
"""How often workers are made anew, or the job restarted, before it has failed. Without it:
`runPolicy.backoffLimit`, or 6."""
RESTARTS = r"[0-9]{1,9}"
"""What such a number looks like."""

GANG = "ringleader/gang"
"""Gang scheduler of this job: `none`, `volcano`, or the name of a scheduler with scheduler-plugins'
coscheduling. Without it: what the operator was started with."""

RDMA_PROFILE = "ringleader/rdma-profile"
"""Name of the way in which this cluster gives NICs to Pods."""

KNOWN: Mapping[str, tuple[str, ...]] = {
    SPAWN: (SPAWN_SSH, SPAWN_EXEC),
    SSH_LAYOUT: (SSH_LAYOUT_SEPARATE, SSH_LAYOUT_REFERENCE),
    SSH_KEY_TYPE: ("ed25519", "ecdsa", "rsa"),
    ON_WORKER_FAILURE: (REPLACE, RESTART, FAIL, KEEP),
    RESTART_LIMIT: (),
    GANG: (),
    RDMA_PROFILE: (),
}
"""Annotation → the values it may have; an empty tuple where any text will do."""
