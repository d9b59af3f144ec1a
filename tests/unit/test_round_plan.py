"""What is pending together: the same plan for the same works, and no other."""

from hypothesis import given
from hypothesis import strategies as st

from ringleader.engine.fusion_buffer import MOST_ROUND_PLANS, RoundPlans
from ringleader.engine.operations import MASK, ReduceOp, Signature, Work, signature_digest


def work(
    name: str | None, *, serial: int = 0, count: int = 3, op: ReduceOp = ReduceOp.SUM, kind: str = "allreduce"
) -> Work:
    signature = Signature(kind=kind, dtype="float32", shape=(count,), op=op)
    made = Work(signature, signature_digest(signature), name=name, serial=serial, array=None, out=None)
    made.repeated = True
    return made


def test_the_same_works_in_the_same_order_have_the_plan_of_before() -> None:
    plans, works = RoundPlans(), [work(name) for name in "abc"]
    assert plans.of(works) is plans.of(tuple(works))


def test_whatever_differs_has_a_plan_of_its_own() -> None:
    plans, (a, b, c) = RoundPlans(), [work(name) for name in "abc"]
    known = plans.of([a, b, c])
    for others in ([a, b], [a, c, b], [a, b, work("c")], [a, b, work("c", count=4)], [a, b, c, work("d")]):
        assert plans.of(others) is not known
        assert plans.of(others).pending == others
    assert plans.of([a, b]).digest != known.digest
    assert plans.of([a, b, work("c", op=ReduceOp.MAX)]).digest != known.digest
    assert plans.of([a, c, b]).digest == plans.of([a, b, c]).digest


def test_what_is_not_repeated_is_not_kept() -> None:
    plans, works = RoundPlans(), [work("a"), work("b")]
    works[1].repeated = False
    assert plans.of(works) is not plans.of(works)
    assert plans.of([works[0]]) is not plans.of([works[0]])  # one alone costs as much to look up


def test_plans_are_bounded() -> None:
    plans, first = RoundPlans(), [work("a"), work("b")]
    known = plans.of(first)
    for at in range(MOST_ROUND_PLANS):
        plans.of([work(f"{at}.a"), work(f"{at}.b")])
    assert plans.of(first) is not known


def test_joining_is_told() -> None:
    assert RoundPlans().of([work("a"), work(None, kind="join")]).joins
    assert not RoundPlans().of([work("join.noname"), work("b")]).joins


@given(st.permutations(range(12)), st.permutations(range(12)))
def test_ranks_that_have_the_same_works_do_them_in_one_order(one: list[int], other: list[int]) -> None:
    def asked(order: list[int]) -> list[Work]:
        named = [work(f"w{at}", count=at + 1) for at in range(8)]
        works = [*named, *(work(None, serial=at) for at in range(4))]
        return [works[at] for at in order]

    mine, theirs = RoundPlans().of(asked(one)), RoundPlans().of(asked(other))
    assert mine.digest == theirs.digest == sum(each.digest for each in mine.pending) & MASK
    assert [each.name for each in mine.in_order] == [each.name for each in theirs.in_order]
