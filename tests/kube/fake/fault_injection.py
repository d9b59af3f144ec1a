"""Trouble on request: refusals, dropped and stale watches, slow answers, a server that is away."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.kube.fake.lists_and_watches import Watcher
from tests.kube.fake.refusals import STALE, Refusal
from tests.kube.fake.requests import Route


@dataclass(kw_only=True)
class Fault:
    """One kind of trouble for requests of one kind."""

    verb: str = ""
    """As RBAC names it; empty: any."""
    resource: str = ""
    """``pods``, ``mpijobs/status``; empty: any."""
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
    hits: int = 0
    """How often it has struck."""

    def fits(self, route: Route) -> bool:
        is_over = self.times is not None and self.hits >= self.times
        return not is_over and self.resource in ("", route.resource) and self.verb in ("", route.verb)


_WORDS = {
    409: ("Conflict", STALE),
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
    watchers: list[Watcher] = field(default_factory=list)
    in_loop: Callable[[Callable[[], None]], None] = lambda work: work()
    """Runs work on the server's loop."""

    def clear(self) -> None:
        """End all trouble."""
        self.active.clear()
        self.is_away = False

    def refuse(self, code: int, *, retry_after: int = 1, **where: int | str | None) -> Fault:
        """Answer with 409, 429, 500, 503 or 504. ``where``: fields of a ``Fault``, as below."""
        refusal = Refusal(code, *_WORDS[code], retry_after=retry_after if code == 429 else None)
        return self._add(refusal=refusal, **where)

    def forbid(self, words: str, *, verb: str = "create", resource: str = "") -> Fault:
        """Refuse for good, as quota and admission do: 403 with these words."""
        return self._add(verb=verb, resource=resource, times=None, refusal=Refusal(403, "Forbidden", words))

    def slow(self, seconds: float, **where: int | str | None) -> Fault:
        """Answer late."""
        return self._add(delay=seconds, **where)

    def drop(self, **where: int | str | None) -> Fault:
        """Break the connection, before or (``is_done``) after the request has been carried out."""
        return self._add(is_dropped=True, **where)

    def _add(self, **fields: object) -> Fault:
        self.active.append(Fault(**fields))  # type: ignore[arg-type]
        return self.active[-1]

    def drop_watches(self) -> None:
        """Break every watch that is open now."""
        self._each(Watcher.drop)

    def stale_watches(self) -> None:
        """Let every watch that is open now deliver nothing more, without ending it."""
        self._each(lambda watcher: setattr(watcher, "is_silent", True))

    def go_away(self) -> None:
        """Close every connection without an answer until ``come_back``; watches break too."""
        self.is_away = True
        self.drop_watches()

    def come_back(self) -> None:
        self.is_away = False

    def _each(self, work: Callable[[Watcher], None]) -> None:
        def visit() -> None:
            for watcher in list(self.watchers):
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
