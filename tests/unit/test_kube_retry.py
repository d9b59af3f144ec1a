"""When requests go out: the rate limit, the pauses between attempts, calls that are made again."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ringleader.kubernetes.client.api_errors import ApiError, UnreachableError
from ringleader.kubernetes.client.api_resources import PODS
from ringleader.kubernetes.client.http_transport import Limiter, Slots
from ringleader.kubernetes.client.retry import Backoff, Outage, create_or_find, with_retries


class Clock:
    """Seconds that pass by sleeping."""

    def __init__(self) -> None:
        self.now = 50.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_a_burst_goes_at_once_then_the_rate_holds_and_a_rest_brings_the_burst_again() -> None:
    clock = Clock()
    limiter = Limiter(10, 5, clock=clock)
    assert [round(limiter.reserve(), 6) for _ in range(8)] == [0, 0, 0, 0, 0, 0.1, 0.2, 0.3]
    clock.now += 3600
    assert [round(limiter.reserve(), 6) for _ in range(6)] == [0, 0, 0, 0, 0, 0.1]


def test_no_limit() -> None:
    limiter = Limiter(0, 1, clock=Clock())
    assert {limiter.reserve() for _ in range(1000)} == {0}


def test_turns_come_in_the_order_of_asking() -> None:
    clock = Clock()
    limiter = Limiter(100, 1, clock=clock, sleep=clock.sleep)

    async def ask() -> list[float]:
        return [await limiter.take() for _ in range(3)]

    assert asyncio.run(ask()) == [0, pytest.approx(0.01), pytest.approx(0.01)]


@given(
    qps=some.floats(0.1, 1000),
    burst=some.integers(1, 50),
    gaps=some.lists(some.floats(0, 2), max_size=60),
)
def test_no_window_holds_more_than_the_burst_and_the_rate(qps: float, burst: int, gaps: list[float]) -> None:
    clock = Clock()
    limiter = Limiter(qps, burst, clock=clock)
    starts = []
    for gap in gaps:
        clock.now += gap
        starts.append(clock.now + limiter.reserve())
    assert starts == sorted(starts)
    for first in range(len(starts)):
        for last in range(first, len(starts)):
            allowed = burst + qps * (starts[last] - starts[first])
            assert last - first + 1 <= allowed + 1e-6


# --- backoff -----------------------------------------------------------------------------------------------


def test_pauses_double_up_to_a_limit() -> None:
    backoff = Backoff(first=0.5, longest=5, spread=0.5, dice=lambda: 0.0)
    assert [backoff.after(attempt) for attempt in (1, 2, 3, 4, 5, 1000)] == [0.5, 1, 2, 4, 5, 5]
    backoff = Backoff(first=0.5, longest=5, spread=0.5, dice=lambda: 1.0)
    assert [backoff.after(attempt) for attempt in (1, 2, 5)] == [0.25, 0.5, 2.5]


# --- calls that are made again ----------------------------------------------------------------------------

AWAY = UnreachableError("away")
BUSY = ApiError(status=429, reason="TooManyRequests", message="busy", retry_after=3)
BROKEN = ApiError(status=503, reason="ServiceUnavailable", message="")
WRONG = ApiError(status=422, reason="Invalid", message="spec: wrong")


def retried(*answers: Exception | str, within: float = 60) -> tuple[str | Exception, Clock, list[str]]:
    clock, left = Clock(), list(answers)
    told: list[str] = []

    async def call() -> str:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    outage, backoff = Outage(told.append), Backoff(first=1, longest=8, dice=lambda: 0.0)
    try:
        found: str | Exception = asyncio.run(
            with_retries(
                call,
                within=within,
                outage=outage,
                backoff=backoff,
                clock=clock,
                sleep=clock.sleep,
            )
        )
    except (ApiError, UnreachableError) as error:
        found = error
    return found, clock, told


@pytest.mark.parametrize(
    ("answers", "end", "slept"),
    [
        (("here",), "here", []),
        ((AWAY, AWAY, "here"), "here", [1, 2]),
        ((BUSY, "here"), "here", [3]),
        ((BROKEN, BUSY, AWAY, AWAY, AWAY, "here"), "here", [1, 3, 4, 8, 8]),
        ((WRONG,), WRONG, []),
        ((AWAY, WRONG), WRONG, [1]),
        ((AWAY,), AWAY, [1, 2, 4, 8, 8, 8, 8, 8, 8, 5]),
    ],
)
def test_retries(answers: tuple[Exception | str, ...], end: Exception | str, slept: list[float]) -> None:
    found, clock, told = retried(*answers)
    assert found is end or found == end
    assert clock.slept == slept
    assert len(told) == (0 if not slept else 2 if end == "here" else 1)


def test_one_is_told_whom_we_wait_for() -> None:
    _, _, told = retried(AWAY, "here")
    assert "the API server does not answer (away)" in told[0] and told[1] == "the API server answers again"


def test_a_pause_that_is_longer_than_our_deadline() -> None:
    found, clock, _ = retried(BUSY, "here", within=2)
    assert found is BUSY and clock.slept == []


def test_calls_under_way_follow_how_soon_the_server_answers():
    now = [0.0]

    async def script() -> list[int]:
        slots = Slots(16, clock=lambda: now[0])
        widths = []

        async def round_of(seconds: float, *, is_write: bool = True) -> None:
            """Have 40 calls wait, and let those that got a slot end together, until all are through."""
            gate, running, left = asyncio.Event(), [0], [40]

            async def call() -> None:
                async with slots.one(is_write=is_write):
                    running[0] += 1
                    await gate.wait()
                    running[0] -= 1
                left[0] -= 1

            tasks = [asyncio.create_task(call()) for _ in range(40)]
            await asyncio.sleep(0)
            widths.append(running[0])
            now[0] += seconds
            while left[0]:
                gate.set()
                await asyncio.sleep(0)
                gate.clear()
            await asyncio.gather(*tasks)

        await round_of(0.1)
        await round_of(30.0, is_write=False)
        for _ in range(5):
            await round_of(1.5)
        for _ in range(20):
            await round_of(0.1)
        await round_of(0.1)
        return widths

    widths = asyncio.run(script())
    assert widths[:3] == [16, 16, 16], "a long listing is slow by itself"
    assert widths[3] < 16, "those that were slow together halve the number once"
    assert all(4 <= width <= 16 for width in widths)
    assert widths[-1] == 16, "it recovers"


async def test_a_call_that_is_cancelled_or_fails_gives_its_slot_back():
    slots = Slots(1)

    async def fail() -> None:
        async with slots.one(is_write=True):
            raise ValueError

    async def wait() -> None:
        async with slots.one(is_write=True):
            await asyncio.Event().wait()

    with pytest.raises(ValueError):
        await fail()
    holder, waiter = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(0)
    for task in (waiter, holder):
        task.cancel()
    await asyncio.gather(holder, waiter, return_exceptions=True)
    with pytest.raises(ValueError):
        await asyncio.wait_for(fail(), 5)


# --- objects that are there already -----------------------------------------------------------------------

POD = {"metadata": {"name": "p", "namespace": "n"}}
EXISTS = ApiError(status=409, reason="AlreadyExists", message="pods p exists")
MISSING = ApiError(status=404, reason="NotFound", message="no such pod")
FORBIDDEN = ApiError(status=403, reason="Forbidden", message="no")


class Answers:
    """A cluster that answers as written: dictionaries are returned, errors raised."""

    def __init__(self, created: list[Any], found: list[Any]) -> None:
        self.created, self.found = created, found

    async def create(self, *_: Any, **__: Any) -> Any:
        return self.given(self.created)

    async def get(self, resource: Any, name: str, namespace: str) -> Any:
        assert (resource, name, namespace) == (PODS, "p", "n")
        return self.given(self.found)

    def given(self, answers: list[Any]) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("created", "found", "is_ours", "end"),
    [
        pytest.param([POD], [], True, POD, id="made"),
        pytest.param([EXISTS], [POD], True, POD, id="made before, and the answer was lost"),
        pytest.param([EXISTS], [POD], False, EXISTS, id="somebody else's"),
        pytest.param([EXISTS, POD], [MISSING], True, POD, id="gone a moment later"),
        pytest.param([EXISTS], [FORBIDDEN], True, FORBIDDEN, id="not to be read"),
        pytest.param([EXISTS], [BROKEN], True, BROKEN, id="cannot be read now"),
        pytest.param([WRONG], [], True, WRONG, id="refused"),
    ],
)
def test_an_object_is_created_or_found(created: list[Any], found: list[Any], is_ours: bool, end: Any) -> None:
    cluster: Any = Answers(list(created), list(found))
    work = create_or_find(cluster, PODS, POD, is_ours=lambda _: is_ours)
    if isinstance(end, Exception):
        with pytest.raises(ApiError) as caught:
            asyncio.run(work)
        assert caught.value is end
    else:
        assert asyncio.run(work) is end
    assert not cluster.created and not cluster.found


def test_an_object_that_comes_and_goes_is_a_conflict_that_passes() -> None:
    cluster: Any = Answers([EXISTS, EXISTS], [MISSING, MISSING])
    with pytest.raises(ApiError, match="pods p exists, but is gone each time it is read") as caught:
        asyncio.run(create_or_find(cluster, PODS, POD, is_ours=lambda _: True))
    assert caught.value.is_stale and not caught.value.is_there_already
