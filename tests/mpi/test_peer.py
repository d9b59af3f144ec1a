"""Messages between pairs of local ranks: rates come out, and a partner that is silent is named in time."""

import json

import pytest

pytestmark = pytest.mark.mpi

PAIRS = """
import json, sys, time
from mpi4py import MPI
from ringleader.bench.pair_plan import PairPlan
from ringleader.bench.pair_rounds import first_rounds
from ringleader.bench.pair_sweep import PairSweep, buffers
from ringleader.bench.peer import Peer, SilentPartnerError
world = MPI.COMM_WORLD
rounds = first_rounds(world.size)
plan = PairPlan(rounds=rounds, sizes=(8, 65536), window=8, both_ways=True, pair_seconds=3.0)
memory, found = buffers(plan), {}
for turn, pairs in enumerate(rounds):
    for first, second in pairs:
        if world.rank not in (first, second):
            continue
        other = second if world.rank == first else first
        peer = Peer(world, other, turn, time.monotonic() + 60)
        assert peer.exchange(world.rank + 1) == other + 1
        sweep = PairSweep(peer, plan, memory, leads=world.rank == first)
        if world.rank == first:
            rows = []
            assert not sweep.lead(rows.append)
            assert [row["size"] for row in rows] == [8, 65536] and rows[0]["latency"] > 0
            found[other] = [rows[1][name] for name in ("rate", "back_rate", "both_ways_rate")]
        else:
            sweep.follow()
if world.size == 2 and world.rank == 0:
    try:
        Peer(world, 1, 9, time.monotonic() + 0.2).exchange()
    except SilentPartnerError as error:
        assert (error.partner, error.during) == (1, "meeting") and error.seconds > 0.1
    else:
        raise AssertionError("nobody answered, and nobody was missed")
    world.Barrier()
if world.size == 2 and world.rank == 1:
    world.Barrier()
    Peer(world, 0, 9, time.monotonic() + 60).exchange()  # late: what rank 0 left still arrives
print(json.dumps(found), flush=True)
"""


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])
def test_every_pair_measures_and_a_silent_partner_is_named(workplace, python, ranks):
    outcome, recorder = workplace.launch(python, "-c", PAIRS, np=ranks)
    assert outcome.exit_code == 0, recorder.all("stderr")
    pairs = 0
    for rank in range(ranks):
        led = json.loads(recorder.text(rank))
        pairs += len(led)
        assert all(rate > 1e5 for rates in led.values() for rate in rates)
    assert pairs == ranks * (ranks - 1) // 2
