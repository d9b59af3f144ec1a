"""Messages between pairs of local ranks: rates come out, and a partner that is silent is named in time."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.mpi

PAIRS = """
import json, sys, time
from mpi4py import MPI
from ringleader.bench.pair_rounds import first_rounds
from ringleader.bench.peer_messages import PeerMessages
from ringleader.bench.point_to_point import SilentPartnerError
world = MPI.COMM_WORLD
messages = PeerMessages(world)
found = {}
for turn, pairs in enumerate(first_rounds(world.size)):
    for first, second in pairs:
        if world.rank not in (first, second):
            continue
        other = second if world.rank == first else first
        until = time.monotonic() + 60
        messages.meet(other, turn, until)
        if world.rank == first:
            found[other] = messages.send(other, turn, seconds=0.05, deadline=until).rate
            messages.receive(other, turn, deadline=until)
            latency = messages.ping(other, turn, seconds=0.05, deadline=until)
            assert 0 < latency.lowest <= latency.median and latency.round_trips >= 1
        else:
            messages.receive(other, turn, deadline=until)
            found[other] = messages.send(other, turn, seconds=0.05, deadline=until).rate
            messages.pong(other, turn, deadline=until)
assert not messages.abandoned
if world.size == 2 and world.rank == 0:
    try:
        messages.meet(1, 9, time.monotonic() + 0.2)
    except SilentPartnerError as error:
        assert (error.partner, error.during) == (1, "meeting") and error.seconds > 0.1
        assert messages.abandoned
    else:
        raise AssertionError("nobody answered, and nobody was missed")
    world.Barrier()
if world.size == 2 and world.rank == 1:
    world.Barrier()
    messages.meet(0, 9, time.monotonic() + 60)  # late: rank 0 has given up, what it left still arrives
print(json.dumps(found), flush=True)
"""


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_pair_measures_and_a_silent_partner_is_named(workplace, python, ranks):
    outcome, recorder = workplace.launch(python, "-c", PAIRS, np=ranks)
    assert outcome.exit_code == 0, recorder.all("stderr")
    for rank in range(ranks):
        rates = json.loads(recorder.text(rank))
        assert sorted(rates) == [str(other) for other in range(ranks) if other != rank]
        assert all(rate > 1e6 for rate in rates.values())
