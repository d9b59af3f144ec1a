"""What measurements come to: every check has its verdict, and each sentence its numbers."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest

from ringleader.fabric.active.active_checks import ACTIVE_CHECKS
from ringleader.fabric.active.judge import judge
from ringleader.fabric.active.measurements import (
    ActiveResults,
    GpuCopy,
    PairLatency,
    PairRate,
    ProgramNote,
    RankSpeed,
    Silence,
)
from ringleader.fabric.active.pair_matrix import pair_matrix
from ringleader.fabric.active.slow_ranks import slow_ranks
from ringleader.fabric.check_result import Verdict
from ringleader.fabric.facts import document, from_document
from ringleader.fabric.rate_text import bit_rate, byte_rate

HOSTS = ("h1", "h2", "h3", "h4")


def rate(source, target, value, **more):
    limits = {"lowest": 0.95 * value, "highest": 1.02 * value, "message_bytes": 1 << 20}
    return PairRate(source=source, target=target, rate=value, **(limits | more))


def measured(*, slow_into=None, **more):
    pairs = permutations(HOSTS, 2)
    fields = {
        "hosts": HOSTS,
        "pair_rates": tuple(rate(s, d, 100e6 if d == slow_into else 400e6) for s, d in pairs),
        "latencies": tuple(
            PairLatency(first=a, second=b, seconds=20e-6, round_trips=200) for a, b in combinations(HOSTS, 2)
        ),
        "ranks": tuple(
            RankSpeed(rank=n, host=h, kernel_seconds=1e-3, kernel_runs=100, copy_rate=20e9)
            for n, h in enumerate(HOSTS)
        ),
        "mpi": "Open MPI 5.0.11",
    }
    return ActiveResults(**(fields | more))


def verdicts(results, **options):
    found = {}
    for one in judge(results, **options):
        found.setdefault(one.id, set()).add(one.verdict)
    return found


def test_each_check_has_a_verdict_whatever_was_measured():
    ids = [one.id for one in ACTIVE_CHECKS]
    assert len(set(ids)) == len(ids) >= 9
    for results in (
        measured(),
        ActiveResults(hosts=("h1",)),
        measured(failure="it ended"),
        measured(ranks=()),
    ):
        assert set(verdicts(results)) == set(ids)


def test_a_healthy_cluster_passes():
    found = verdicts(measured())
    without_rdma = {id: verdict for id, verdict in found.items() if "rdma" not in id and id != "active.gpu"}
    assert set.union(*without_rdma.values()) == {Verdict.PASS}


def test_a_slow_host_fails_and_stands_in_the_matrix():
    results = measured(slow_into="h3")
    assert verdicts(results)["active.host"] == {Verdict.FAIL}
    assert pair_matrix(results) == (
        "from \\ to   h1    h2    h3    h4\n"
        "h1               400   100*  400\n"
        "h2         400         100*  400\n"
        "h3         400   400         400\n"
        "h4         400   400   100*\n"
        "Mbit/s, MPI messages; * below 70 % of 400\n"
    )


def test_the_better_of_two_passes_counts():
    again = tuple(rate(s, "h3", 390e6, pass_number=2) for s in HOSTS if s != "h3")
    first = measured(slow_into="h3")
    results = measured(pair_rates=(*first.pair_rates, *again), passes=2)
    assert verdicts(results)["active.host"] == {Verdict.PASS}


def test_links_that_are_all_slow_are_judged_by_what_they_should_have():
    assert verdicts(measured(), expected_rate=1e9)["active.rate"] == {Verdict.FAIL}
    assert verdicts(measured(), expected_rate=450e6)["active.rate"] == {Verdict.PASS}


def test_who_did_not_answer_is_named():
    silent = Silence(host="h1", partner="h3", during="meeting", seconds=6.0)
    (one,) = (one for one in judge(measured(silences=(silent,))) if one.id == "active.answer")
    assert one.verdict is Verdict.FAIL and one.hosts == ("h1", "h3") and "6.0 s" in one.seen


def test_a_long_latency_is_told_unless_hosts_share_a_machine():
    odd = PairLatency(first="h3", second="h4", seconds=900e-6, round_trips=200)
    latencies = (*measured().latencies[:-1], odd)
    (one,) = (one for one in judge(measured(latencies=latencies)) if one.id == "active.latency")
    assert one.verdict is Verdict.WARN and "h3 ↔ h4: 900 µs" in one.seen
    assert verdicts(measured(latencies=latencies, one_machine=True))["active.latency"] == {Verdict.PASS}


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
    assert [one.rank for one in slow_ranks({0: 1.0, 1: 1.02, 2: 0.98, 3: 1.3})] == [3]
    assert slow_ranks({0: 1.0, 1: 1.4, 2: 0.6, 3: 1.5}) == ()  # all scatter
    assert slow_ranks({0: 1.0, 1: 5.0}) == () and slow_ranks({}) == ()


def test_a_gpu_with_half_of_its_lanes_fails():
    def ranks(slow):
        return tuple(
            RankSpeed(
                rank=n,
                host=h,
                kernel_seconds=1e-3,
                kernel_runs=9,
                gpus=tuple(
                    GpuCopy(device=d, name="GPU", to_gpu=slow if (n, d) == (1, 3) else 50e9, from_gpu=50e9)
                    for d in range(4)
                ),
            )
            for n, h in enumerate(HOSTS)
        )

    (one,) = (one for one in judge(measured(ranks=ranks(20e9))) if one.id == "active.gpu")
    assert one.verdict is Verdict.FAIL and one.seen.startswith("GPU 3 of h2: 20.0 GB/s to the GPU")
    assert verdicts(measured(ranks=ranks(49e9)))["active.gpu"] == {Verdict.PASS}


def test_programs_of_others_are_judged_like_messages_or_skipped_with_the_reason():
    ring = [("h1", "h2"), ("h2", "h3"), ("h3", "h4"), ("h4", "h1")]
    rates = [rate(s, d, 40e9 if "h3" in (s, d) else 390e9, program="ib_write_bw") for s, d in ring]
    rates += [rate(d, s, 40e9 if "h3" in (s, d) else 390e9, program="ib_write_bw") for s, d in ring]
    results = measured(pair_rates=(*measured().pair_rates, *rates))
    bad = [one for one in judge(results) if one.verdict is Verdict.FAIL]
    assert {one.id for one in bad} == {"active.rdma_rate"} and {one.hosts for one in bad} == {("h3",)}
    assert all(one.seen.startswith("ib_write_bw: h3 ") for one in bad)
    note = ProgramNote(program="", reason="no RDMA device with an active port", hosts=HOSTS)
    skips = [one for one in judge(measured(notes=(note,))) if one.id.startswith("active.rdma")]
    assert {(one.verdict, one.seen) for one in skips} == {(Verdict.SKIP, note.reason)}


def test_a_program_that_fails_between_two_hosts_is_a_failure_beside_the_others():
    note = ProgramNote(program="ib_write_bw", reason="it ended with 1; Unable to init", hosts=("h2", "h3"))
    rates = [rate(*pair, 390e9, program="ib_write_bw") for pair in permutations(("h1", "h2", "h4"), 2)]
    results = measured(pair_rates=(*measured().pair_rates, *rates), notes=(note,))
    (one,) = (one for one in judge(results) if one.verdict is Verdict.FAIL)
    assert (one.id, one.hosts) == ("active.rdma_rate", ("h2", "h3")) and "Unable to init" in one.seen
    found = verdicts(measured(notes=(note,)))
    assert (found["active.rdma_rate"], found["active.rdma_latency"]) == ({Verdict.FAIL}, {Verdict.SKIP})


def test_results_survive_json():
    results = measured(slow_into="h2", silences=(Silence(host="h1", partner="h2", during="x", seconds=1.0),))
    assert from_document(ActiveResults, document(results)) == results


def test_a_large_matrix_is_cut_and_says_so():
    hosts = tuple(f"n{number}" for number in range(40))
    results = ActiveResults(hosts=hosts, pair_rates=(rate("n0", "n1", 1e9), rate("n1", "n0", 1e9)))
    assert "8 more hosts are left out" in pair_matrix(results)
    assert pair_matrix(ActiveResults(hosts=hosts)) == ""


@pytest.mark.parametrize(
    ("rates", "text"),
    [
        ((98.2e6,), "98.2 Mbit/s"),
        ((95e6, 102e6), "95.0 to 102 Mbit/s"),
        ((4e11,), "400 Gbit/s"),
        ((12.0,), "12.0 bit/s"),
    ],
)
def test_rates_have_three_digits_in_one_unit(rates, text):
    assert bit_rate(*rates) == text
    assert byte_rate(12.4e9) == "12.4 GB/s"
