"""The work queue: a key at a time, once however often it is added, pauses only after its own errors."""

import asyncio
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ringleader.kubernetes.operator.runtime.work_queue import RequeueBackoff, WorkQueue


@dataclass
class Hand:
    """A clock that is set by hand."""

    time: float = 1000.0

    def __call__(self) -> float:
        return self.time


def make(**pauses: float) -> tuple[WorkQueue[str], Hand]:
    clock = Hand()
    return WorkQueue(clock=clock, pauses=RequeueBackoff(**pauses)), clock


def test_the_earlier_of_two_wishes_counts():
    queue, clock = make()
    queue.add("a", after=10)
    queue.add("a", after=3)
    queue.add("a", after=30)
    clock.time += 2.9
    assert queue.take_due() is None
    clock.time += 0.2
    assert queue.take_due() == "a"
    queue.done("a")
    clock.time += 100
    assert queue.take_due() is None, "wishes that were later are settled with the earlier one"


@pytest.mark.parametrize(("failures", "pause"), [(1, 0.1), (2, 0.2), (10, 51.2), (11, 60), (5000, 60)])
def test_pauses_double_up_to_the_longest(failures, pause):
    assert RequeueBackoff().after(failures) == pytest.approx(pause)


def test_errors_pause_their_own_key_only_and_are_forgotten_after_success():
    queue, clock = make()
    paused = []
    for _ in range(3):
        queue.add("a")
        clock.time += 100
        assert queue.take_due() == "a"
        paused.append(queue.failed("a"))
        queue.add("b")
        assert queue.take_due() == "b"
        queue.done("b")
    assert paused == pytest.approx([0.1, 0.2, 0.4])
    clock.time += 100
    assert queue.take_due() == "a"
    queue.done("a")
    assert queue.failures("a") == 0
    queue.add("a")
    queue.take_due()
    assert queue.failed("a") == pytest.approx(0.1)


def test_a_change_shortens_a_long_pause_but_not_below_the_brisk_one():
    queue, clock = make(first=40.0, brisk=1.0)
    queue.add("a")
    queue.take_due()
    assert queue.failed("a") == 40
    queue.add("a")
    clock.time += 0.9
    assert queue.take_due() is None
    clock.time += 0.2
    assert queue.take_due() == "a"


def test_what_the_server_asks_for_is_waited_even_when_something_changes():
    queue, clock = make()
    queue.add("a")
    queue.take_due()
    assert queue.failed("a", at_least=7) == 7
    queue.add("a")
    clock.time += 6.9
    assert queue.take_due() is None
    clock.time += 0.2
    assert queue.take_due() == "a"


def test_progress_begins_the_pauses_anew():
    queue, clock = make()
    for has_progressed, pause in [(False, 0.1), (False, 0.2), (True, 0.1), (False, 0.2)]:
        queue.add("a")
        clock.time += 100
        assert queue.take_due() == "a"
        assert queue.failed("a", has_progressed=has_progressed) == pytest.approx(pause)


def test_a_costly_pass_buys_its_key_a_rest():
    queue, clock = make()
    queue.add("a")
    queue.take_due()
    queue.done("a", rest=0.3)
    queue.add("a")
    clock.time += 0.2
    assert queue.take_due() is None
    clock.time += 0.2
    assert queue.take_due() == "a"


def test_a_key_that_is_gone_leaves_nothing_behind():
    queue, clock = make()
    queue.add("a")
    queue.take_due()
    queue.failed("a")
    queue.forget("a")
    clock.time += 1000
    assert queue.take_due() is None
    assert queue.failures("a") == 0
    queue.add("a")
    assert queue.take_due() == "a"


def test_waiting_ends_with_an_addition_with_a_moment_or_with_the_end():
    async def play() -> list[str | None]:
        loop = asyncio.get_running_loop()
        queue: WorkQueue[str] = WorkQueue(clock=loop.time)
        first, second = asyncio.create_task(queue.take()), asyncio.create_task(queue.take())
        await asyncio.sleep(0)
        queue.add("later", after=0.02)
        queue.add("now")
        got = {await first, await second}
        third = asyncio.create_task(queue.take())
        await asyncio.sleep(0)
        queue.close()
        return [*sorted(str(one) for one in got), await third]

    assert asyncio.run(asyncio.wait_for(play(), 30)) == ["later", "now", None]


def test_many_who_wait_share_the_keys_and_miss_none():
    async def play() -> list[str]:
        loop = asyncio.get_running_loop()
        queue: WorkQueue[str] = WorkQueue(clock=loop.time)
        done: list[str] = []

        async def work() -> None:
            while (key := await queue.take()) is not None:
                await asyncio.sleep(0.001)
                queue.done(key)
                done.append(key)

        workers = [asyncio.create_task(work()) for _ in range(8)]
        await asyncio.sleep(0)
        for number in range(40):
            queue.add(f"k{number}", after=0.004 * (number % 5))
        while len(done) < 40:
            await asyncio.sleep(0.001)
        queue.close()
        await asyncio.gather(*workers)
        return done

    found = asyncio.run(asyncio.wait_for(play(), 30))
    assert sorted(found) == sorted(f"k{number}" for number in range(40))


class Machine(RuleBasedStateMachine):
    """Whatever happens: no key is lost, none is worked on twice at once, none runs before its time."""

    keys = st.sampled_from("abc")

    def __init__(self) -> None:
        super().__init__()
        self.queue, self.clock = make(first=1.0, longest=8.0, brisk=2.0)
        self.owed: set[str] = set()
        """Added and not taken since."""
        self.working: set[str] = set()
        self.barred: dict[str, float] = {}

    @rule(key=keys, after=st.sampled_from([0.0, 0.5, 3.0]))
    def add(self, key: str, after: float) -> None:
        self.queue.add(key, after=after)
        self.owed.add(key)

    @rule(seconds=st.sampled_from([0.0, 0.3, 1.0, 5.0]))
    def wait(self, seconds: float) -> None:
        self.clock.time += seconds

    @rule()
    def take(self) -> None:
        key = self.queue.take_due()
        if key is not None:
            assert key not in self.working
            assert key in self.owed
            assert self.clock.time >= self.barred.get(key, 0)
            self.owed.discard(key)
            self.working.add(key)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), again=st.sampled_from([None, 0.0, 2.0]), rest=st.sampled_from([0.0, 1.0]))
    def done(self, data: st.DataObject, again: float | None, rest: float) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.working.discard(key)
        self.queue.done(key, again_after=again, rest=rest)
        self.barred[key] = self.clock.time + rest
        if again is not None:
            self.owed.add(key)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), at_least=st.sampled_from([0.0, 4.0]))
    def failed(self, data: st.DataObject, at_least: float) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.working.discard(key)
        pause = self.queue.failed(key, at_least=at_least)
        self.barred[key] = self.clock.time + max(min(pause, 2.0), at_least)
        self.owed.add(key)

    @invariant()
    def nothing_is_lost(self) -> None:
        waiting = {key for key in "abc" if key in self.owed and key not in self.working}
        assert len(self.queue) == len(waiting)

    def teardown(self) -> None:
        for key in sorted(self.working):
            self.queue.done(key)
        self.clock.time += 100
        taken = set()
        while (key := self.queue.take_due()) is not None:
            taken.add(key)
        assert taken == self.owed


TestMachine = Machine.TestCase
