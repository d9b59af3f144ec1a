"""Which operations can be done: by name, in any order, with ranks that have joined, and after long waits."""

from dataclasses import replace
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from ringleader.engine.engine_settings import Limits
from ringleader.engine.group_engine import Engine
from ringleader.engine.negotiation import Decision, Pending, decide, decode, encode
from ringleader.engine.operations import JOIN, ReduceOp, Signature

ADD = Signature(kind="allreduce", dtype="float32", shape=(3,))
GATHER = Signature(kind="allgather", dtype="float32", shape=(3,))
JOINING = (JOIN, Signature(kind="join"))
BUCKET = Signature(kind="gradients", dtype="float32", shape=(64,), note="plan 1")


def asked(*entries, blocked=True, stuck=0.0, ages=(), offers=(), counted=0):
    return Pending(
        entries=entries, blocked=blocked, stuck_seconds=stuck, ages=ages, offers=offers, counted=counted
    )


def decided(*ranks, mismatch=1.0, **limits):
    return decide(ranks, limits=Limits(mismatch=mismatch, **limits))


def test_what_all_have_asked_for_is_ready_in_one_order():
    decision = decided(
        asked(("a", ADD), ("b", ADD), ("c", ADD)),
        asked(("c", ADD), ("a", ADD)),
        asked(("x", ADD), ("a", ADD), ("c", ADD)),
    )
    assert decision == Decision(ready=("a", "c"), mismatched={}, deadlocked="")


def test_a_mismatch_names_what_differs_and_where():
    for other, subject in (
        (Signature(kind="broadcast", dtype="float32", shape=(3,)), "operations"),
        (Signature(kind="allreduce", dtype="float32", shape=(3,), device="cuda"), "devices"),
        (Signature(kind="allreduce", dtype="int32", shape=(3,)), "data types"),
        (Signature(kind="allreduce", dtype="float32", shape=(4,)), "tensor shapes"),
        (Signature(kind="allreduce", dtype="float32", shape=(3,), op=ReduceOp.MAX), "reduce operations"),
        (Signature(kind="allreduce", dtype="float32", shape=(3,), prescale=2.0), "scale factors"),
        (Signature(kind="allreduce", dtype="float32", shape=(3,), note="plan 1"), "requests"),
    ):
        decision = decided(asked(("a", ADD)), asked(("a", other)), asked(("a", ADD)))
        assert decision.ready == ()
        assert decision.mismatched["a"].startswith(f"Mismatched {subject} for 'a': ranks 0, 2: ")
        assert "; rank 1: " in decision.mismatched["a"]


def test_a_deadlock_needs_all_ranks_blocked_for_long():
    stuck = [asked(("a", ADD), stuck=2), asked(("b", ADD), stuck=1.5)]
    assert decided(*stuck).deadlocked == (
        "Mismatched operations, and every rank waits: rank 0 for 'a'; rank 1 for 'b'"
    )
    assert decided(*stuck, mismatch=1.7).deadlocked == ""
    assert decided(stuck[0], asked(("b", ADD), stuck=9, blocked=False)).deadlocked == ""
    assert decided(stuck[0], asked(("a", ADD), ("b", ADD), stuck=9)).deadlocked == ""


def test_unnamed_operations_of_different_kinds_are_a_mismatch_at_once():
    ranks = [
        asked(("allreduce.noname.1", ADD), ("allgather.noname.2", GATHER), blocked=False),
        asked(("allgather.noname.1", GATHER), ("allreduce.noname.2", ADD), blocked=False),
    ]
    decision = decided(*ranks)
    assert decision.ready == ()
    assert set(decision.mismatched) == {
        f"{kind}.noname.{serial}" for kind in ("allreduce", "allgather") for serial in (1, 2)
    }
    for name, text in decision.mismatched.items():
        assert text.startswith(f"Mismatched operations for 'noname.{name[-1]}': rank 0: all")
    # One that not all ranks have asked for yet waits, as does what a script only called so.
    assert decided(ranks[0], asked(*ranks[1].entries[1:])).mismatched.keys() == {
        "allgather.noname.2",
        "allreduce.noname.2",
    }
    named = asked(("allgather.noname.x", GATHER)), asked(("allreduce.noname.x", ADD))
    assert decided(*named).mismatched == {}


def test_memory_goes_when_no_rank_needs_it():
    ranks = [replace(asked(("a", ADD)), unused=unused) for unused in ((4, 2, 7), (7, 4), (1, 4, 7, 9))]
    assert decided(*ranks).unused == (4, 7)
    assert decided(asked(), *ranks).unused == ()


# joining


def test_ranks_that_have_joined_take_part_in_reductions():
    barrier = ("barrier.noname", Signature(kind="barrier"))
    decision = decided(asked(JOINING), asked(("a", ADD), barrier), asked(barrier, ("a", ADD), ("b", ADD)))
    assert decision.ready == ("a", "barrier.noname")
    assert decision.absent == {"a": ADD, "barrier.noname": barrier[1]}
    assert decision.last_joined is None
    assert not decision.mismatched


def test_what_a_rank_asked_for_before_it_joined_is_still_its_own():
    wider = replace(ADD, shape=(4,))
    fits = decided(asked(("a", ADD), JOINING), asked(("a", ADD)))
    assert (fits.ready, fits.absent) == (("a",), {})
    differs = decided(asked(("a", wider), JOINING), asked(("a", ADD)))
    assert differs.mismatched["a"].startswith("Mismatched tensor shapes for 'a': rank 0: ")
    # Nobody else asks for it any more, or yet: it waits.
    waits = decided(asked(("a", ADD), JOINING), asked(("b", ADD)))
    assert (waits.ready, waits.mismatched) == (("b",), {})


def test_other_operations_end_while_a_rank_has_joined():
    for kind in ("allgather", "broadcast", "alltoall", "reducescatter", "register"):
        call = replace(GATHER, kind=kind)
        decision = decided(asked(("a", call)), asked(JOINING), asked(("a", call)))
        assert decision.ready == ()
        assert decision.mismatched == {
            "a": f"{kind.capitalize()} 'a' is not supported while rank 1 joined (hvd.join)."
        }
        early = decided(asked(("a", call)), asked(JOINING), asked(("b", ADD)))
        assert (early.ready, early.mismatched) == ((), {})


def test_gradients_for_which_a_rank_that_has_joined_has_no_memory_are_copied():
    others = [asked(("bucket", BUCKET)), asked(("bucket", BUCKET))]
    fits = decided(*others, asked(JOINING, offers=(("bucket", BUCKET),)))
    assert (fits.ready, fits.absent, fits.copied) == (("bucket",), {"bucket": BUCKET}, frozenset())
    for offers in ((), (("bucket", replace(BUCKET, note="plan 2")),)):
        lacks = decided(*others, asked(JOINING, offers=offers))
        assert (lacks.ready, lacks.copied) == (("bucket",), {"bucket"})


def test_the_last_to_join_is_the_same_everywhere():
    for ages, last in (
        ((3.0, 1.0, 2.0), 1),
        ((1.0, 3.0, 2.0), 0),
        ((2.0, 2.0, 2.0), 2),
        ((2.0, 1.0, 1.0), 2),
    ):
        pending = [asked(JOINING, ages=(age,), counted=7 + rank) for rank, age in enumerate(ages)]
        decision = decided(*pending)
        assert decision.ready == (JOIN,)
        assert (decision.last_joined, decision.counted) == (last, 9)


def test_who_joined_in_a_later_exchange_is_the_last_whatever_clocks_say():
    early = replace(asked(JOINING, ages=(0.0,)), joined_for=2)
    late = replace(asked(JOINING, ages=(0.5,)), joined_for=1)
    assert decided(early, late, early).last_joined == 1
    assert decode(encode(early)).joined_for == 2


# long waits


def test_a_stall_names_the_tensor_and_the_missing_ranks():
    ranks = [
        asked(("a", ADD), ages=(61.0,), blocked=False),
        asked(("b", ADD), ages=(0.1,), blocked=False),
        asked(("a", ADD), ages=(59.0,), blocked=False),
        asked(("b", ADD), ages=(0.2,)),
    ]
    decision = decided(*ranks, warn=60.0)
    assert decision.stalled == {"a": "'a' has waited 61 s for ranks 1, 3 to ask for it too"}
    assert decision.shutdown == ""
    assert decided(*ranks, warn=62.0).stalled == {}
    late = decided(*ranks, warn=30.0, shutdown=60.0).shutdown
    assert late == "Horovod has been shut down: 'a' has waited 61 s for ranks 1, 3 to ask for it too."


CALLS = st.builds(
    Signature,
    kind=st.sampled_from(["allreduce", "allgather", "barrier"]),
    dtype=st.sampled_from(["float32", "bool"]),
    shape=st.lists(st.integers(0, 2**40), max_size=3).map(tuple),
    prescale=st.floats(allow_nan=False),
    device=st.sampled_from(["cpu", "cuda"]),
)


@given(
    st.builds(
        Pending,
        entries=st.lists(st.tuples(st.text(), CALLS), max_size=3).map(tuple),
        ages=st.lists(st.floats(0, 1e6), max_size=3).map(tuple),
        blocked=st.booleans(),
        stuck_seconds=st.floats(0, 1e6),
        offers=st.lists(st.tuples(st.text(), CALLS), max_size=2).map(tuple),
        counted=st.integers(0, 2**62),
        unused=st.lists(st.integers(1, 99), max_size=3).map(tuple),
    )
)
def test_lists_survive_the_journey(pending):
    assert decode(encode(pending)) == pending


NAMES = st.sampled_from("abcdef")


@given(
    st.lists(
        st.tuples(st.lists(st.tuples(NAMES, st.sampled_from([ADD, GATHER])), max_size=6), st.booleans()),
        min_size=1,
        max_size=4,
    )
)
def test_every_rank_can_do_what_is_decided(ranks):
    pending = [
        asked(*dict(entries).items(), *([JOINING] if joins else []), blocked=False)
        for entries, joins in ranks
    ]
    decision = decided(*pending)
    assert not set(decision.ready) & set(decision.mismatched)
    assert len(set(decision.ready)) == len(decision.ready)
    for name in decision.ready:
        for own in pending:
            mine = dict(own.entries)
            assert name in mine or (JOIN in mine and decision.absent[name].kind == "allreduce")
        assert len({dict(own.entries).get(name, decision.absent.get(name)) for own in pending}) == 1
    for name in decision.mismatched:
        assert any(name in dict(own.entries) for own in pending)
    assert (decision.last_joined is None) == (not all(joins for _, joins in ranks))


def test_standing_still_begins_anew_with_each_operation_that_a_rank_asks_for():
    """A slow script that continues in another thread is no deadlock."""
    now, said = 0.0, []

    def exchange(mine):
        said.append(decode(mine).stuck_seconds)
        return [mine, encode(asked(("other", ADD), stuck=99.0))]

    parts = mock.MagicMock(limits=Limits(mismatch=5.0), clock=lambda: now)
    parts.barrier.exchange = exchange
    engine = Engine(parts)
    first, second = (mock.Mock(signature=ADD, since=since) for since in (0.0, 4.0))
    first.name, second.name = "first", "second"
    engine._negotiate([first], blocked=True)
    now = 4.5
    engine._negotiate([first, second], blocked=True)
    now = 8.5
    engine._negotiate([first, second], blocked=True)
    assert said == [0.0, 0.5, 4.5]
