"""Ranks that ask for the same operations under swapped names, in other orders or with one changed fact.

argv: how many rounds. What ranks agree on ends in the right sums, all else in an error on every rank; nothing
hangs, and no result is a mixture. The rounds are drawn from one seed, so all ranks know what each one does.
"""

import itertools
import random
import sys

import torch
from ranks import RANK, SIZE, hvd

draw = random.Random(20)


FACTS = {
    "allreduce": ("kind", "count", "dtype", "op"),
    "broadcast": ("kind", "count", "dtype", "root"),
    "allgather": ("kind", "dtype"),
}
"""What ranks must mean alike, by kind."""


def described():
    """Draw one operation."""
    return {
        "kind": draw.choice(("allreduce", "allreduce", "broadcast", "allgather")),
        "count": draw.choice((4, 6, 300, 70_000)),
        "dtype": draw.choice(("float32", "int32")),
        "op": draw.choice((hvd.Sum, hvd.Max)),
        "root": draw.randrange(SIZE),
    }


def changed(one):
    """Return the operation with one fact changed that counts for its kind."""
    others = {
        "count": (5, 7, 301, 70_001),
        "dtype": ("float64",),
        "op": (hvd.Min,),
        "root": ((one["root"] + 1) % SIZE,),
        "kind": tuple(FACTS.keys() - {one["kind"]}),
    }
    fact = draw.choice(FACTS[one["kind"]])
    return {**one, fact: draw.choice(sorted(others[fact]))}


def same(one, other):
    return all(one[fact] == other[fact] for fact in FACTS[one["kind"]])


def values(one, rank):
    return torch.full((one["count"],), 2 + 3 * rank).to(getattr(torch, one["dtype"]))


def begin(one, name):
    mine = values(one, RANK)
    if one["kind"] == "allreduce":
        return hvd.allreduce_async(mine, name=name, op=one["op"])
    if one["kind"] == "broadcast":
        return hvd.broadcast_async(mine, one["root"], name=name)
    return hvd.allgather_async(mine, name=name)


def wanted(everybody):
    """Return the result that all ranks must have."""
    one, parts = everybody[RANK], [values(each, rank) for rank, each in enumerate(everybody)]
    if one["kind"] == "allreduce":
        stack = torch.stack(parts)
        return stack.sum(0).to(parts[0].dtype) if one["op"] == hvd.Sum else stack.max(0).values
    return parts[one["root"]] if one["kind"] == "broadcast" else torch.cat(parts)


met = {"right": 0, "refused": 0}
for turn in range(int(sys.argv[1])):
    how = draw.choice(("named", "named", "unnamed", "grouped"))
    count = draw.randint(2, 4)
    base = [described() for _ in range(count)]
    if how == "grouped":
        base = [{**one, "kind": "allreduce", "op": hvd.Sum} for one in base]
    if draw.random() < 0.3:
        base = [dict(base[0]) for _ in range(count)]
    # asked[rank][at]: what the rank asks for under the name (or as the unnamed operation) number ``at``.
    asked = [list(base) for _ in range(SIZE)]
    for mistaken in draw.sample(range(SIZE), draw.randint(0, SIZE)):
        if draw.random() < 0.6:
            draw.shuffle(asked[mistaken])
        elif how != "grouped":
            at = draw.randrange(count)
            asked[mistaken][at] = changed(asked[mistaken][at])
    orders = [draw.sample(range(count), count) for _ in range(SIZE)]
    order = orders[RANK] if how == "named" else list(range(count))
    hvd.barrier()
    results = {}
    if how == "grouped":
        try:
            mine = [values(one, RANK) for one in asked[RANK]]
            results = dict(enumerate(hvd.grouped_allreduce(mine, op=hvd.Sum, name=f"g{turn}")))
        except hvd.HorovodInternalError as error:
            assert "Mismatched" in str(error), error
    else:
        handles = {at: begin(asked[RANK][at], f"n{turn}.{at}" if how == "named" else None) for at in order}
        for at, handle in handles.items():
            try:
                results[at] = hvd.synchronize(handle)
            except hvd.HorovodInternalError as error:
                assert "Mismatched" in str(error), error
    agreed = [
        all(same(one[at], other[at]) for one, other in itertools.pairwise(asked)) for at in range(count)
    ]
    for at in range(count):
        if not agreed[at] or (how == "grouped" and not all(agreed)):
            assert at not in results, (turn, how, at, [one[at] for one in asked], results[at])
            met["refused"] += 1
        else:
            right = wanted([one[at] for one in asked])
            assert at in results and torch.equal(results[at], right), (turn, how, at, results.get(at))
            met["right"] += 1
assert min(met.values()) > int(sys.argv[1]) // 2, met
print("rank done", flush=True)
