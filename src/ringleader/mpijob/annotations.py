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

KNOWN: Mapping[str, tuple[str, ...]] = {SPAWN: (SPAWN_SSH, SPAWN_EXEC)}
"""Annotation → the values it may have; an empty tuple where any text will do."""
