"""From the options of a command to a connection with a cluster; what is said where a package is missing."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ringleader.cli.interrupts import Interrupted
from ringleader.cli.options.kubernetes_options import ClusterOptions
from ringleader.errors import Fault, RefusedError, collected
from ringleader.option_fields import words_of

if TYPE_CHECKING:
    import asyncio

    from ringleader.followed_job import End, Listener
    from ringleader.kubernetes.client.cluster import Cluster
    from ringleader.kubernetes.jobs.job_state import JobView


@contextmanager
def needs_kubernetes() -> Iterator[None]:
    """Turn a missing library of the extra ``kubernetes`` into a RefusedError that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library == "ringleader":
            raise
        hint = "pip install 'ringleader[kubernetes]'"
        raise RefusedError(f"the Python package {library} is missing", hint=hint) from None


Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A cluster that we speak to, and where in it."""

    cluster: Cluster
    namespace: str
    options: str
    """The options that led here, for commands that we tell the user to type: `` --namespace team``."""
    ends = ("delete", "deleting")

    @property
    def where(self) -> str:
        """As `Place` has it."""
        return f" in namespace {self.namespace}"

    def command(self, verb: str, name: str = "") -> str:
        """As `Place` has it."""
        return f"ringleader k8s {verb}{name and f' {name}'}{self.options}"

    async def follow(
        self, job: JobView, listener: Listener, *, shows_log: bool, start_timeout: float | None
    ) -> End:
        """As `Place` has it."""
        from ringleader.kubernetes.jobs.job_follower import Follower  # doctor of hosts starts without it

        follower = Follower(self.cluster, job, listener, clock=time.time, shows_log=shows_log)
        return await follower.run(start_timeout=start_timeout)


def with_cluster(options: ClusterOptions, do: Callable[[Connection], Awaitable[Result]]) -> Result:
    """Connect, do something and close. Raises RequestError where no cluster is configured."""
    import asyncio  # doctor of hosts starts without it

    with needs_kubernetes():
        from ringleader.kubernetes.client.cluster import Cluster
        from ringleader.kubernetes.client.kubeconfig import credentials

    async def doing() -> Result:
        asyncio.get_running_loop().set_exception_handler(_unheard)
        found = await credentials(kubeconfig=options.kubeconfig, context=options.context)
        with needs_kubernetes():
            cluster = Cluster(found)
        try:
            namespace = options.namespace or found.namespace
            return await do(Connection(cluster=cluster, namespace=namespace, options=again(options)))
        finally:
            await cluster.close()

    return asyncio.run(doing())


def _unheard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an exception that nobody took, but a signal: it has left the loop, and ends the command."""
    if not isinstance(context.get("exception"), Interrupted):
        loop.default_exception_handler(context)


def namespace_without_cluster(options: ClusterOptions, faults: list[Fault]) -> str:
    """Return the namespace that a job would be sent to; ``default`` where no cluster is configured.

    What is wrong with the kubeconfig is added to ``faults``.
    """
    if options.namespace is not None:
        return options.namespace
    with needs_kubernetes():
        from ringleader.kubernetes.client.kubeconfig import namespace_of
    namespace = ""
    with collected(faults):
        namespace = namespace_of(options.kubeconfig, options.context, os.environ)
    return namespace


def again(options: ClusterOptions) -> str:
    """Return the options that lead to the same place once more."""
    return "".join(f" {shlex.quote(word)}" for word in words_of(options, ClusterOptions()))


def tell(text: str) -> None:
    """Say a line to the person at the terminal."""
    print(f"ringleader: {text}", file=sys.stderr, flush=True)
