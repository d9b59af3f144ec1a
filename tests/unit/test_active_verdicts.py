"""What measurements come to: every check has its verdict, and each sentence its numbers."""

from dataclasses import replace
from itertools import combinations, permutations

import pytest

from ringleader.bench.pair_answers import ProgramError
from ringleader.bench.rank_speed import GpuCopy, RankSpeed
from ringleader.dataclass_json import document, from_document
from ringleader.doctor.active_tests import ActiveResults, ProgramNote, ProgramPairs
from ringleader.doctor.active_verdicts import judge, slow_among
from ringleader.fabric.active.link_results import latency_results, pair_matrix
from ringleader.fabric.check_result import Verdict
from ringleader.fabric.rate_text import bit_rate, byte_rate
from ringleader.measurements.point_to_point import Place, PointToPointRun, Silence, Transfer
from ringleader.scaling import Context

IDS = {
    *(f"active.{name}" for name in ("answer", "rate", "host", "pair", "trunk", "latency")),
    *(f"active.{name}" for name in ("compute", "memory", "gpu", "rdma_rate", "rdma_latency", "rdma_gpu")),
}
HOSTS = ("h1", "h2", "h3", "h4")


def transfer(source, target, bits, **more):
    fields = {"size": 1 << 20, "rate": bits / 8} | more
    return Transfer(source=HOSTS.index(source), target=HOSTS.index(target), **fields)


def latency(first, second, seconds):
    return transfer(first, second, 0, size=8, rate=None, latency=seconds)


def measured(*, slow_into=None, **more):
    rates = [transfer(s, d, 100e6 if d == slow_into else 400e6) for s, d in permutations(HOSTS, 2)]
    times = [latency(a, b, 20e-6) for a, b in combinations(HOSTS, 2)]
    fields = {
        "hosts": HOSTS,
        "transfers": (*rates, *times),
        "ranks": tuple(
            RankSpeed(rank=n, host=h, kernel_seconds=1e-3, kernel_runs=100, copy_rate=20e9)
            for n, h in enumerate(HOSTS)
        ),
        "mpi": "Open MPI 5.0.11",
    }
    return ActiveResults(**(fields | more))


def perftest(*transfers, errors=(), **more):
    run = PointToPointRun(
        name="x",
        context=Context(command=()),
        places=tuple(Place(rank=rank, host=host) for rank, host in enumerate(HOSTS)),
        transfers=transfers,
        program="perftest",
        **more,
    )
    return (ProgramPairs(run=run, ports=(("mlx5_0:1",),) * len(HOSTS), errors=errors),)


def verdicts(results, **options):
    found = {}
    for one in judge(results, **options):
        found.setdefault(one.id, set()).add(one.verdict)
    return found


def test_each_check_has_a_verdict_whatever_was_measured():
    for results in (
        measured(),
        ActiveResults(hosts=("h1",)),
        measured(failure="it ended"),
        measured(ranks=()),
    ):
        assert set(verdicts(results)) == IDS


@pytest.mark.parametrize("device", ["mlx5_9:1", ""])
def test_a_port_that_the_facts_do_not_list_loses_no_other_result(device):
    (pairs,) = perftest(transfer("h1", "h2", 390e9, device=device), transfer("h2", "h1", 390e9, device="b:1"))
    ports = (("a:1",), *(("a:1", "b:1"),) * 3)
    found = verdicts(measured(programs=(replace(pairs, ports=ports),)))
    assert set(found) == IDS and found["active.rate"] == {Verdict.PASS}


def test_a_slow_host_fails_and_stands_in_the_matrix():
    results = measured(slow_into="h3")
    assert verdicts(results)["active.host"] == {Verdict.FAIL}
    assert pair_matrix(results.hosts, results.best_rates()) == (
        "from \\ to   h1    h2    h3    h4\n"
        "h1               400   100*  400\n"
        "h2         400         100*  400\n"
        "h3         400   400         400\n"
        "h4         400   400   100*\n"
        "Mbit/s, MPI messages; * below 70% of 400\n"
    )


def test_the_better_of_two_passes_counts():
    again = tuple(transfer(s, "h3", 390e6) for s in HOSTS if s != "h3")
    results = measured(transfers=(*measured(slow_into="h3").transfers, *again), passes=2)
    assert verdicts(results)["active.host"] == {Verdict.PASS}


def test_who_did_not_answer_is_named():
    silent = Silence(source=0, target=2, during="meeting", seconds=6.0)
    (one,) = (one for one in judge(measured(silences=(silent,))) if one.id == "active.answer")
    assert one.verdict is Verdict.FAIL and one.hosts == ("h1", "h3") and "6.0 s" in one.seen


def test_a_long_latency_is_judged_by_what_hosts_reach_with_their_best_partner():
    for slow, verdict, hosts in (
        ({}, "pass", ()),
        ({("h3", "h4"): 5e-6}, "pass", ()),
        ({("h3", "h4"): 7e-6}, "warn", ("h3", "h4")),
        ({("h3", "h4"): 25e-6}, "fail", ("h3", "h4")),
        # A host at 25 µs on a fabric of 2 µs.
        ({(host, "h4"): 25e-6 for host in HOSTS[:3]}, "fail", ("h4",)),
    ):
        latencies = {pair: 2e-6 for pair in combinations(HOSTS, 2)} | slow
        (one,) = latency_results(latencies)
        assert one.verdict == verdict and one.hosts == hosts
        (one,) = latency_results(latencies, one_machine=True)
        assert one.verdict is Verdict.PASS


@pytest.mark.parametrize(("times", "verdict"), [(1.1, "pass"), (1.5, "warn"), (3.0, "fail")])
def test_a_straggling_rank_is_named(times, verdict):
    ranks = list(measured().ranks)
    ranks[2] = RankSpeed(
        rank=2, host="h3", kernel_seconds=times * 1e-3, kernel_runs=50, copy_rate=20e9 / times
    )
    for check in ("active.compute", "active.memory"):
        (one,) = (one for one in judge(measured(ranks=tuple(ranks))) if one.id == check)
        assert one.verdict == verdict and (verdict == "pass" or one.hosts == ("h3",))
    assert verdicts(measured(ranks=tuple(ranks), one_machine=True))["active.compute"] == {Verdict.SKIP}


def test_stragglers_stand_out_of_what_the_others_scatter():
    assert [one.index for one in slow_among({0: 1.0, 1: 1.02, 2: 0.98, 3: 1.3})] == [3]
    assert slow_among({0: 1.0, 1: 1.4, 2: 0.6, 3: 1.5}) == ()  # all scatter
    assert slow_among({0: 1.0, 1: 5.0}) == () and slow_among({}) == ()


def test_gpus_are_compared_with_those_of_their_model():
    def judged(*copies):
        gpus = tuple(
            GpuCopy(device=d, name=name, to_gpu=rate, from_gpu=rate) for d, (name, rate) in enumerate(copies)
        )
        rank = RankSpeed(rank=0, host="h1", kernel_seconds=1e-3, kernel_runs=9, gpus=gpus)
        return [one for one in judge(measured(ranks=(rank,))) if one.id == "active.gpu"]

    good = [("H100", 50e9)] * 5 + [("L4", 12e9)] * 4
    found = judged(*good, ("L4", 11.9e9))
    assert [one.verdict for one in found] == [Verdict.PASS] * 2 and found[1].seen.startswith("5 GPUs (L4)")
    bad = [one for one in judged(*good, ("L4", 3e9)) if one.verdict is Verdict.FAIL]
    assert {one.subject for one in bad} == {"GPU 9"}
    assert bad[0].seen.startswith("GPU 9 of h1: 3.00 GB/s to the GPU"), bad


def test_programs_of_others_are_judged_like_messages_or_skipped_with_the_reason():
    ring = [("h1", "h2"), ("h2", "h3"), ("h3", "h4"), ("h4", "h1")]
    rates = [transfer(*way, 40e9 if "h3" in way else 390e9) for pair in ring for way in (pair, pair[::-1])]
    bad = [one for one in judge(measured(programs=perftest(*rates))) if one.verdict is Verdict.FAIL]
    assert {one.id for one in bad} == {"active.rdma_rate"} and {one.hosts for one in bad} == {("h3",)}
    assert all(one.seen.startswith("ib_write_bw: h3 ") for one in bad)
    note = ProgramNote(reason="no RDMA device with an active port", hosts=HOSTS)
    skips = {one.id: one for one in judge(measured(notes=(note,))) if one.id.startswith("active.rdma")}
    assert {one.verdict for one in skips.values()} == {Verdict.SKIP}
    assert skips["active.rdma_rate"].seen == skips["active.rdma_latency"].seen == note.reason


def test_a_program_that_fails_between_two_hosts_is_a_failure_beside_the_others():
    error = ProgramError(source=1, target=2, test="ib_write_bw", why="it ended with 1; Unable to init")
    rates = [transfer(*pair, 390e9) for pair in permutations(("h1", "h2", "h4"), 2)]
    results = measured(programs=perftest(*rates, errors=(error,)))
    (one,) = (one for one in judge(results) if one.verdict is Verdict.FAIL)
    assert (one.id, one.hosts) == ("active.rdma_rate", ("h2", "h3"))
    assert one.seen == "ib_write_bw from h2 to h3: it ended with 1; Unable to init"
    found = verdicts(measured(programs=perftest(errors=(error,))))
    assert (found["active.rdma_rate"], found["active.rdma_latency"]) == ({Verdict.FAIL}, {Verdict.SKIP})


def test_texts_documents_and_expected_rates():
    hosts = tuple(f"n{number}" for number in range(40))
    assert "8 more hosts are left out" in pair_matrix(hosts, {("n0", "n1"): 1e9, ("n1", "n0"): 1e9})
    assert pair_matrix(hosts, {}) == ""
    assert (bit_rate(98.2e6), bit_rate(95e6, 102e6)) == ("98.2 Mbit/s", "95.0 to 102 Mbit/s")
    assert (bit_rate(4e11), bit_rate(12.0), byte_rate(12.4e9)) == ("400 Gbit/s", "12.0 bit/s", "12.4 GB/s")
    silent = Silence(source=0, target=1, during="x", seconds=1.0)
    results = measured(slow_into="h2", silences=(silent,), programs=perftest(transfer("h1", "h2", 1e9)))
    assert from_document(ActiveResults, document(results)) == results
    with pytest.raises(ValueError, match="bytes cannot be"):
        from_document(Transfer, {**document(transfer("h1", "h2", 1e9)), "size": 10**400})
    assert verdicts(measured(), expected_rate=1e9)["active.rate"] == {Verdict.FAIL}
    assert verdicts(measured(), expected_rate=450e6)["active.rate"] == {Verdict.PASS}
