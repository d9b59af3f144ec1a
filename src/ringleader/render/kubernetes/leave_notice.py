"""A worker of an elastic job that is to go tells the host agents in it, while there is still time. Pure.

A Pod's end reaches only the first process of a container, which is sshd or sleeps. So a hook runs before
that: it finds each agent's outer process (one whose parent is none), tells it by SIGUSR1, and stays until all
have ended; the Pod's grace period bounds that. The image needs a shell and ``tr``.
"""

from __future__ import annotations

from ringleader.mpijob.elastic_range import is_elastic
from ringleader.mpijob.model import MPIJob
from ringleader.mpijob.object_metadata import Document

NOTICE = """\
is_agent() {
  case "$(tr '\\0' ' ' 2>/dev/null <"/proc/$1/cmdline")" in *ranks/host_[a]gent.py*) ;; *) false;; esac
}
parent() {
  while read -r name value; do [ "$name" = PPid: ] && echo "$value" && break; done <"/proc/$1/status"
}
agents=
for path in /proc/[0-9]*; do
  pid=${path#/proc/}
  is_agent "$pid" && ! is_agent "$(parent "$pid")" && agents="$agents $pid"
done 2>/dev/null
for pid in $agents; do kill -USR1 "$pid"; done 2>/dev/null
for pid in $agents; do while is_agent "$pid"; do sleep 0.2; done; done 2>/dev/null
:"""
"""``[a]`` keeps the shell that runs this from finding its own words."""


def with_notice(container: Document, job: MPIJob) -> Document:
    """Return the first container of a worker with the hook; a hook of the user's stays as it is."""
    lifecycle = container.get("lifecycle") or {}
    if not is_elastic(job) or lifecycle.get("preStop"):
        return container
    hook = {"exec": {"command": ["/bin/sh", "-c", NOTICE]}}
    return {**container, "lifecycle": {**lifecycle, "preStop": hook}}
