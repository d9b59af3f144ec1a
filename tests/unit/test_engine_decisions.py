"""The engine's decisions: which operations can be done, where gradients lie, what the environment says."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.agents.usable_cores import RankProcessors
from ringleader.engine.agreement_barrier import PAGE_BYTES, SharedFlags
from ringleader.engine.engine_settings import read_settings, wrong_library
from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.group_communicators import any_oversubscribed
from ringleader.engine.operations import MASK, ReduceOp, Signature, Work, signature_digest
from ringleader.engine.peer_wait import End, PeerEnd, PeerWait
from ringleader.torch.bucket_plan import ParameterShape, first_difference, plan_buckets

ADD = Signature(kind="allreduce", dtype="float32", shape=(3,))


SWAPPED = [
    Signature(kind=kind, dtype=dtype, shape=shape, op=op, root=root)
    for kind in ("allreduce", "broadcast", "allgather")
    for dtype in ("float32", "int32")
    for shape in ((4,), (6,))
    for op in (ReduceOp.SUM, ReduceOp.MAX)
    for root in (0, 1)
]


def test_a_wait_for_ranks_that_live_has_no_end_but_is_told_ever_less_often():
    times, said = iter(range(0, 100_000, 20)), []
    peer_wait = PeerWait(
        rank=1,
        liveness_sources=[],
        warn_seconds=read_settings({}).limits.warn,
        deadline_seconds=read_settings({}).deadline_seconds,
        clock=lambda: next(times),
        say=said.append,
    )
    peer_wait.subject, looks = "an allreduce", iter(range(400))
    peer_wait.until(lambda: next(looks) == 399, lambda: [0])
    assert 5 < len(said) < 10
    assert said[0].endswith("s in an allreduce for rank 0")
    polling = read_settings({"RINGLEADER_DEADLINE": "100"})
    assert (polling.deadline_seconds, polling.limits.shutdown) == (100, 100)
    assert read_settings({"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "90"}).deadline_seconds == 90


def test_who_gave_up_because_of_another_is_not_named_beside_that_one():
    gone = {0: PeerEnd(End.FINISHED, 1), 2: PeerEnd(End.BROKEN)}
    peer_wait = PeerWait(rank=1, liveness_sources=[lambda: gone], warn_seconds=9, deadline_seconds=9)
    with pytest.raises(HorovodInternalError, match=r"^rank 0 has ended with exit code 1 while rank 1 waits"):
        peer_wait.until(lambda: False, lambda: [0, 2])
    gone.pop(0)
    with pytest.raises(HorovodInternalError, match=r"^rank 2 gave up in an operation"):
        peer_wait.until(lambda: False, lambda: [0, 2])


def test_the_digest_of_a_peer_is_read_after_its_turn():
    """A processor may read the second of two lines first, unless a fence stands between."""
    pages = [bytearray(PAGE_BYTES) for _ in range(2)]
    peer = memoryview(pages[1]).cast("Q")
    peer[8] = 1  # the peer's turn is to be seen already, its digest behind the next fence

    def fence():
        if memoryview(pages[0]).cast("Q")[8] == 1:
            peer[9] = 77

    segment = SimpleNamespace(parts=pages, fence=fence)
    idle = None
    flags = SharedFlags(segment, me=0, ranks=[0, 1], mpi_calls=idle, peer_wait=idle, oversubscribed=False)
    assert flags.agree(77)


def test_all_ranks_of_a_host_have_laid_out_alike_or_none_has():
    pages = [bytearray(PAGE_BYTES) for _ in range(2)]
    segment = SimpleNamespace(parts=pages, fence=None)
    idle = None
    flags, peer = (
        SharedFlags(segment, me=me, ranks=[0, 1], mpi_calls=idle, peer_wait=idle, oversubscribed=False)
        for me in (0, 1)
    )

    def meeting(mine, theirs):
        for one, how in ((flags, mine), (peer, theirs)):
            if how:
                one.laying_out(how)
        words = memoryview(pages[1]).cast("Q")
        turn = flags.meetings + 1
        words[(turn & 1) * 8], words[(turn & 1) * 8 + 1] = turn, 5  # the peer has come already
        assert flags.agree(5) and peer.agree(5)
        return [flags.laid_out(), peer.laid_out()]

    assert meeting(1, 1) == [1, 1]
    assert meeting(1 << 45, 1 << 45) == [1 << 45, 1 << 45]
    assert meeting(1, 0) == [0, 0], "what was said two meetings ago"
    assert meeting(0, 0) == [0, 0]
    assert meeting(1, 2) == [0, 0]
    assert meeting(3, 3) == [3, 3]


def test_where_models_differ():
    one = [ParameterShape(name="a", dtype="float32", itemsize=4, dims=(2,))]
    two = [ParameterShape(name="b", dtype="float32", itemsize=4, dims=(3,))]
    assert first_difference(one, two) == "parameter 0 is a float32[2] and b float32[3]"
    assert first_difference(one, one + two) == "1 and 2 parameters"
    assert first_difference(one + two, one + two) == ""
    plans = [plan_buckets(shapes, cap_bytes=None).digest for shapes in (one, two, one + two, two + one)]
    assert len(set(plans)) == len(plans)


def digest_of(signature, name, serial=0):
    work = Work(signature, signature_digest(signature), name=name, serial=serial, array=None, out=None)
    return work.digest


@given(
    st.lists(st.sampled_from(SWAPPED), min_size=2, max_size=5),
    st.one_of(st.just(None), st.text(max_size=4)),
    st.integers(0, 1 << 40),
    st.randoms(use_true_random=False),
)
def test_digests_of_a_round_tell_who_has_which_name(calls, name, serial, random):
    """The sum is the same in every order, and for another assignment of calls to names it is another."""

    def total(calls):
        named = [None if name is None else f"{name}_{at}of{len(calls)}" for at in range(len(calls))]
        return sum(map(digest_of, calls, named, range(serial, serial + len(calls)))) & MASK

    other = random.sample(calls, len(calls))
    assert (total(calls) == total(other)) == (calls == other)
    assert digest_of(ADD, "a", 1) == digest_of(ADD, "a", 2), "of a name the number does not count"


def test_who_started_this_process():
    for environ, launched, size in (
        ({"RANK": "0", "WORLD_SIZE": "4"}, False, None),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "1"}, True, 4),
        ({"PMI_SIZE": "3", "PMI_RANK": "0"}, True, 3),
        ({"PMIX_RANK": "0"}, True, None),
    ):
        settings = read_settings(environ)
        assert (settings.launched, settings.size) == (launched, size)


def test_a_library_that_is_not_the_launchers():
    for environ, library, size, wrong in (
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "Open MPI v5.0.11, package: x", 2, ""),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "Open MPI v5.0.11, package: x", 1, "sees only this one"),
        ({"RINGLEADER_MPI_FAMILY": "openmpi4"}, "Open MPI v5.0.11", 1, "started by Open MPI v4"),
        ({"RINGLEADER_MPI_FAMILY": "openmpi4"}, "Open MPI v4.1.4, package: Debian", 1, ""),
        ({"RINGLEADER_MPI_FAMILY": "mpich"}, "MPICH Version:\t4.0.2", 4, ""),
        ({"RINGLEADER_MPI_FAMILY": "mpich"}, "MVAPICH2 Version      :\t2.3.7", 4, ""),
        ({"RINGLEADER_MPI_FAMILY": "openmpi5"}, "MVAPICH Version:      3.0", 4, "started by Open MPI v5"),
        ({"RINGLEADER_MPI_FAMILY": "intel"}, "Intel(R) MPI Library 2021.14", 4, ""),
        ({"RINGLEADER_MPI_FAMILY": "intel"}, "MPICH Version:\t4.0.2", 4, "started by Intel"),
    ):
        text = wrong_library(read_settings(environ), library=library, size=size)
        assert (wrong in text) if wrong else (text == "")


def test_mpi_proxies_count_as_processes_where_there_are_several_hosts():
    """On one host they sleep: ranks exchange in shared memory."""
    two, four = (RankProcessors(frozenset(range(cpus)), ()) for cpus in (2, 4))
    one_host, two_hosts = [0, 0], [0, 0, 2, 2]
    assert not any_oversubscribed(one_host, [two] * 2, proxied=True)
    assert any_oversubscribed(two_hosts, [two] * 4, proxied=True)
    assert not any_oversubscribed(two_hosts, [two] * 4, proxied=False)
    assert any_oversubscribed(two_hosts, [four, four, two, two], proxied=True)
    assert not any_oversubscribed(two_hosts, [four] * 4, proxied=True)
