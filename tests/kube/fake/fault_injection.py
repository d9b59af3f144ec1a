"""Trouble on request: refusals, dropped and stale watches, slow answers, a server that is away."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.kube.fake.lists_and_watches import Watcher
from tests.kube.fake.refusals import Refusal
from tests.kube.fake.requests import Route


@dataclass(kw_only=True)
class Fault:
    """One kind of trouble for requests of one kind."""

    verb: str = ""
    """As RBAC names it; empty: any."""
    resource: str = ""
    """``pods``, ``mpijobs/status``, ``pods/*``; empty: any."""
    name: str = ""
    times: int | None = 1
    """How often it strikes; ``None``: until it is taken back."""
    after: int = 0
    """Requests that pass before the first."""
    delay: float = 0.0
    """Seconds that the answer is late."""
    refusal: Refusal | None = None
    """What is answered; ``None``: the request is served, late if so asked."""
    is_dropped: bool = False
    """The connection breaks; with ``is_done`` after the request has been carried out."""
    is_done: bool = False
    """The request is carried out although its answer is the fault's."""
    hits: int = 0
    """How often it has struck."""

    @property
    def is_over(self) -> bool:
        return self.times is not None and self.hits >= self.times

    def fits(self, route: Route) -> bool:
        if self.is_over:
            return False
        every = f"{route.kind.plural}/*"
        return (
            self.resource in ("", route.resource, every)
            and self.verb in ("", route.verb)
            and self.name in ("", route.name)
        )


_WORDS = {
    409: ("Conflict", "the object has been modified; please apply your changes to the latest version"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    500: ("InternalError", "Internal error occurred: etcdserver: leader changed"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "the server was unable to return a response in the time allotted"),
}


@dataclass
class Faults:
    """All the trouble there is now. Call it from any thread: the server takes it up with its next request."""

    active: list[Fault] = field(default_factory=list)
    is_away: bool = False
    """Connections are closed without an answer."""
    watchers: list[tuple[Route, Watcher]] = field(default_factory=list)
    in_loop: Callable[[Callable[[], None]], None] = lambda work: work()
    """Runs work on the server's loop."""

    def add(self, fault: Fault) -> Fault:
        """Cause trouble; the value returned counts its strikes."""
        self.active.append(fault)
        return fault

    def clear(self) -> None:
        """End all trouble."""
        self.active.clear()
        self.is_away = False

    def refuse(
        self,
        code: int,
        *,
        verb: str = "",
        resource: str = "",
        name: str = "",
        times: int | None = 1,
        after: int = 0,
        retry_after: int | None = None,
    ) -> Fault:
        """Answer with 409, 429, 500, 503 or 504."""
        refusal = Refusal(code, *_WORDS[code])
        if code == 429:
            wait = 1 if retry_after is None else retry_after
            refusal.headers["Retry-After"] = str(wait)
            refusal.details["retryAfterSeconds"] = wait
        fault = Fault(verb=verb, resource=resource, name=name, times=times, after=after, refusal=refusal)
        return self.add(fault)

    def forbid(self, words: str, *, verb: str = "create", resource: str = "") -> Fault:
        """Refuse for good, as quota and admission do: 403 with these words."""
        refusal = Refusal(403, "Forbidden", words)
        return self.add(Fault(verb=verb, resource=resource, times=None, refusal=refusal))

    def slow(self, seconds: float, *, verb: str = "", resource: str = "", times: int | None = 1) -> Fault:
        """Answer late."""
        return self.add(Fault(verb=verb, resource=resource, times=times, delay=seconds))

    def drop(
        self, *, verb: str = "", resource: str = "", times: int | None = 1, is_done: bool = False
    ) -> Fault:
        """Break the connection, before or after the request has been carried out."""
        fault = Fault(verb=verb, resource=resource, times=times, is_dropped=True, is_done=is_done)
        return self.add(fault)

    def drop_watches(self, resource: str = "") -> None:
        """Break every watch that is open now."""
        self._each(resource, Watcher.drop)

    def stale_watches(self, resource: str = "") -> None:
        """Let every watch that is open now deliver nothing more, without ending it."""

        def silence(watcher: Watcher) -> None:
            watcher.is_silent = True

        self._each(resource, silence)

    def go_away(self) -> None:
        """Close every connection without an answer until ``come_back``; watches break too."""
        self.is_away = True
        self.drop_watches()

    def come_back(self) -> None:
        self.is_away = False

    def _each(self, resource: str, work: Callable[[Watcher], None]) -> None:
        def visit() -> None:
            for route, watcher in list(self.watchers):
                if resource in ("", route.kind.plural):
                    work(watcher)

        self.in_loop(visit)

    async def strike(self, route: Route) -> Fault | None:
        """Find the trouble that a request is in for, and let it be late if so asked."""
        for fault in self.active:
            if fault.fits(route):
                if fault.after > 0:
                    fault.after -= 1
                    continue
                fault.hits += 1
                if fault.delay:
                    await asyncio.sleep(fault.delay)
                return fault
        return None
