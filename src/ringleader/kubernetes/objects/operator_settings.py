"""What the operator was started with, as far as the objects that it makes depend on it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.option_fields import flag, option

DEFAULT_DNS_DOMAIN = "cluster.local"
"""What Kubernetes' documentation and every installer call a cluster unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class OperatorSettings:
    """What is the same for all jobs of one operator."""

    image: str = option(
        "The operator's image, also used for its init containers in jobs' Pods.",
        default="",
        envvar="RINGLEADER_OPERATOR_IMAGE",
    )
    """It waits for the workers in an init container of the launcher, and carries there what mpirun calls.
    Empty: no init container; the launcher is as the reference makes it, and jobs that spawn by exec cannot
    run."""
    image_pull_policy: str = option(
        "Pull policy of that image: Always, IfNotPresent or Never.",
        default="",
        choices=["", "Always", "IfNotPresent", "Never"],
        show_choices=False,
        metavar="POLICY",
    )
    """Empty: what Kubernetes does by itself."""
    wait_timeout: float = option(
        "Time for which a launcher waits for workers that have an address but do not answer.",
        default=900.0,
        above=0,
        unit="seconds",
    )
    """Then it gives up and names them."""
    has_exec_spawn: bool = flag(
        "Run jobs with ringleader/spawn: exec. [default: reject them]", "--exec-spawn/--no-exec-spawn"
    )
    """The operator has the rights that such jobs take."""
    has_log_tails: bool = flag(
        "Show the end of a failed container's log in status and events. [default: no]",
        "--log-tails/--no-log-tails",
    )
    """Off unless asked for: who may read a job need not be one who may read its logs."""
    gang: str = option(
        "Gang scheduler for jobs that do not name one: volcano, kubernetes, or one with coscheduling.",
        "--gang-scheduling",
        default="",
        metavar="NAME",
    )
    """Empty or ``none``: none."""
    cluster_domain: str = option("Domain at the end of host names: cluster.local.", default="")
    """Empty: they end in ``.svc``."""
    dns_domain: str = DEFAULT_DNS_DOMAIN
    """Domain that the workers' search list is completed with where ``cluster_domain`` is empty:
    ``domain_of_search`` finds it."""

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
