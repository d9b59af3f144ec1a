"""How long whoever looks again and again sleeps between two looks: ranks, and MPI proxies for them. Pure."""

NAP_SECONDS = 0.00002
"""One sleep. A rank that sleeps leaves its processor to whoever has work, and is woken at once when the time
is over; one that only yields would wait for the others' time slices."""
LONG_NAP_SECONDS = 0.0005
"""One sleep of a wait that is longer than `SHORT_SECONDS`."""
SHORT_SECONDS = 0.1
NAP_SHARE = 1 / 16
"""A wait for messages naps for this share of the time that it has lasted: each look at them makes MPI work,
which takes the processor from ranks that share it, and from backward where that goes on meanwhile."""

LOOKS = 3
"""Times that MPI is asked at one look: where a message has come, Open MPI reads it when it is asked first,
takes the collective call that it is for a step on when it is asked again, and then finds that this is done.
Between 2 hosts of a lab with 2 ranks each an all-reduce of 8 bytes took 1.3 ms with one, 0.9 with two, 0.6
with three; a fourth changed nothing."""


def nap_seconds(waited: float, share: float = NAP_SHARE) -> float:
    """Return how long to sleep between two looks, after ``waited`` seconds: up to this share of them."""
    nap = max(NAP_SECONDS, share * waited) if waited < SHORT_SECONDS else LONG_NAP_SECONDS
    return min(nap, LONG_NAP_SECONDS)
