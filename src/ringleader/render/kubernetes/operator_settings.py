"""What the operator was started with, as far as the objects that it makes depend on it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_DNS_DOMAIN = "cluster.local"
"""What Kubernetes' documentation and every installer call a cluster unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class OperatorSettings:
    """What is the same for all jobs of one operator."""

    image: str = ""
    """The operator's own image: it waits for the workers in an init container of the launcher, and carries
    there what mpirun calls. Empty: no init container; the launcher is as the reference makes it, and jobs
    that spawn by exec cannot run."""
    image_pull_policy: str = ""
    """``Always``, ``IfNotPresent`` or ``Never``; empty: what Kubernetes does by itself."""
    cluster_domain: str = ""
    """Domain of the cluster, written behind the hosts' names; empty: they end in ``.svc``."""
    dns_domain: str = DEFAULT_DNS_DOMAIN
    """Domain that the workers' search list is completed with where ``cluster_domain`` is empty:
    ``domain_of_search`` finds it."""
    gang: str = ""
    """Gang scheduler of jobs that do not say: ``volcano``, or the name of a scheduler with scheduler-plugins'
    coscheduling. Empty or ``none``: none."""
    wait_timeout: float = 900.0
    """Seconds that a launcher waits for workers that have an address and do not answer before it gives up
    and names them."""
    has_exec_spawn: bool = False
    """The operator has the rights that jobs with ``ringleader/spawn: exec`` take."""
    has_log_tails: bool = False
    """The end of a failed container's log is shown in the job's status and events. Off unless asked for: who
    may read a job need not be one who may read its logs."""

    @property
    def search_domain(self) -> str:
        """The cluster's domain as far as it is known."""
        return self.cluster_domain or self.dns_domain


def domain_of_search(resolv_conf: str) -> str:
    """Return the cluster's domain from a Pod's ``/etc/resolv.conf``; ``cluster.local`` where it has none.

    The kubelet writes ``search NAMESPACE.svc.DOMAIN svc.DOMAIN DOMAIN …`` there.
    """
    for line in resolv_conf.splitlines():
        words = line.split()
        if words[:1] == ["search"]:
            for word in words[1:]:
                if word.startswith("svc.") and len(word) > len("svc."):
                    return word.removeprefix("svc.").rstrip(".")
    return DEFAULT_DNS_DOMAIN
