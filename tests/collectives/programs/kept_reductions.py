"""Many small reductions by name, step after step: whatever changes between two steps, every sum is right."""

import gc
import random
import weakref

import torch
from refusals import refused

import ringleader.torch as hvd
from ringleader.adapters.handles import CAPACITY, GROUP, KEPT, PENDING
from ringleader.torch.basics import session

hvd.init(process_sets="dynamic")
RANK, SIZE = hvd.rank(), hvd.size()
TOTAL = SIZE * (SIZE + 1) // 2
NAMES = [f"w{at}" for at in range(12)]


def value(at):
    return (torch.arange(at * 7 + 1) % 13 + at).float()


def step(names, tensors=None, order=None):
    """Reduce a tensor for each name, check the sums and return the tensors."""
    tensors = tensors or {name: torch.empty_like(value(at)) for at, name in enumerate(names)}
    for at, name in enumerate(names):
        tensors[name].view(-1).copy_(value(at) * (RANK + 1))
    handles = {name: hvd.allreduce_async_(tensors[name], name=name, op=hvd.Sum) for name in order or names}
    for name, handle in handles.items():
        assert hvd.synchronize(handle) is tensors[name]
    for at, name in enumerate(names):
        assert torch.equal(tensors[name].view(-1), value(at) * TOTAL), name
    return tensors


def together(tensors, names, want, **options):
    """Reduce tensors in place under their names; each result is ``want`` everywhere."""
    options = {"op": hvd.Sum, **options}
    handles = [
        hvd.allreduce_async_(one, name=name, **options) for one, name in zip(tensors, names, strict=False)
    ]
    for handle in handles:
        got = hvd.synchronize(handle)
        assert torch.allclose(got, torch.full_like(got, float(want))), (options, got)


def kept_work(name):
    return KEPT[name].works[0]


# The same tensors, then others of their shapes, are reduced by the works of the first step.
tensors = step(NAMES)
works = [kept_work(name) for name in NAMES]
for _ in range(3):
    step(NAMES, tensors)
step(NAMES)
assert [kept_work(name) for name in NAMES] == works
assert all(work.array is None and work.out is None for work in works)
gone = weakref.ref(step(NAMES)["w3"])
gc.collect()
assert gone() is None, "nothing keeps a script's tensor alive"

# Every rank in its own order; fewer of them, more of them, and parts of them by turns.
mine = random.Random(RANK)
for _ in range(6):
    step(NAMES, tensors, order=mine.sample(NAMES, len(NAMES)))
for count in (5, 12, 1, 2, 12, 3):
    step(NAMES[:count], tensors)
step([*NAMES, "one more"])

# Tensors that changed under their names: described anew.
for change in (
    lambda tensor: tensor.view(-1, 1),
    lambda tensor: torch.cat([tensor, tensor])[::2],
    lambda tensor: torch._neg_view(tensor),
    lambda tensor: tensor.clone().requires_grad_(),
):
    step(NAMES, tensors)
    changed = dict(tensors)
    before = kept_work("w4")
    changed["w4"] = change(tensors["w4"])
    with torch.no_grad():
        step(NAMES, changed)
    assert "w4" not in KEPT or kept_work("w4") is not before
# The same object may change in place, too.
step(NAMES, tensors)
before = kept_work("w5")
tensors["w5"].unsqueeze_(0)
step(NAMES, tensors)
assert kept_work("w5") is not before
tensors["w5"].data = tensors["w5"].data.double()
step(NAMES, tensors)
assert kept_work("w5").signature.dtype == "float64"
assert hvd.allreduce(torch.ones(3), name="w5", op=hvd.Sum).tolist() == [SIZE] * 3
refused(ValueError, lambda: hvd.allreduce_async_(torch.ones(5).to_sparse(), name="w6", op=hvd.Sum))

# Another reduction under the same name, and other factors.
for options, want in (
    ({"op": hvd.Max}, SIZE),
    ({"op": hvd.Min}, 1),
    ({"prescale_factor": 2.0}, 2 * TOTAL),
    ({"postscale_factor": 3.0}, 3 * TOTAL),
    ({"op": hvd.Average}, TOTAL / SIZE),
) * 2:
    together([torch.full((9,), RANK + 1.0) for _ in range(4)], NAMES, want, **options)

# A name that is pending cannot be asked for; what is pending is not harmed. With the lock of rounds the first
# one stays pending until the second call, however long a busy machine takes between them.
with session().engine.queue.lock:
    pending = [hvd.allreduce_async_(torch.ones(3), name=name, op=hvd.Sum) for name in ("p", "q")]
    both = [torch.ones(2), torch.ones(3)]
    pending.append(hvd.grouped_allreduce_async_(both, name="group", op=hvd.Sum))
    words = {"op": hvd.Sum}
    refused(ValueError, lambda: hvd.allreduce_async_(torch.ones(3), name="p", **words), "still pending")
    again = [torch.ones(2), torch.ones(3)]
    refused(ValueError, lambda: hvd.grouped_allreduce_async_(again, name="group", **words), "still pending")
assert [hvd.synchronize(handle).tolist() for handle in pending[:2]] == [[SIZE] * 3] * 2
assert [one.tolist() for one in hvd.synchronize(pending[2])] == [[SIZE] * 2, [SIZE] * 3]
assert [hvd.poll(handle) for handle in pending] == [True] * 3
assert hvd.synchronize(pending[0]) is None and not PENDING

# A rank that has another shape, and one that has not asked yet: an error on all ranks, then as before.
for _ in range(3 * (SIZE > 1)):
    tensors = step(NAMES)
    several = [torch.full((len(value(at)) + (at == 4 and RANK == SIZE - 1),), 1.0) for at in range(12)]
    words = zip(several, NAMES, strict=True)
    handles = [hvd.allreduce_async_(one, name=name, op=hvd.Sum) for one, name in words]
    for at, handle in enumerate(handles):
        if at == 4:
            mismatch = hvd.HorovodInternalError
            refused(mismatch, lambda h=handle: hvd.synchronize(h), "Mismatched tensor shapes")
        else:
            hvd.synchronize(handle)
    assert "w4" not in KEPT
    late = [hvd.allreduce_async_(torch.ones(5), name=f"late{at}", op=hvd.Sum) for at in range(3)]
    if RANK == 0:
        late.append(hvd.allreduce_async_(torch.ones(5), name="missing", op=hvd.Sum))
    assert [hvd.synchronize(handle).tolist() for handle in late[:3]] == [[SIZE] * 5] * 3
    if RANK:
        late.append(hvd.allreduce_async_(torch.ones(5), name="missing", op=hvd.Sum))
    assert hvd.synchronize(late[3]).tolist() == [SIZE] * 5
    step(NAMES, tensors)

# Names belong to the set in which they were used last.
if SIZE > 2:
    part = hvd.add_process_set([0, 1])
    for _ in range(2):
        if RANK < 2:
            together([torch.full((5,), RANK + 1.0) for _ in range(3)], NAMES, 3.0, process_set=part)
        step(NAMES)
    hvd.remove_process_set(part)
    assert not KEPT
    gone_set = {"name": "w0", "op": hvd.Sum, "process_set": part}
    refused(ValueError, lambda: hvd.allreduce_async_(torch.ones(5), **gone_set))

# Ranks run out of data one after the other; the others continue with the same names.
for _turn in range(2):
    for count in range(SIZE - RANK):
        together([torch.full((5,), 1.0) for _ in range(6)], NAMES, SIZE - count)
    hvd.join()
step(NAMES)


def group_step(tensors, name="group", want=TOTAL, **options):
    """Reduce a group and check the results and that they are the script's tensors."""
    for at, tensor in enumerate(tensors):
        tensor.view(-1).copy_(value(at)[: tensor.numel()] * (RANK + 1))
    results = hvd.grouped_allreduce_(tensors, name=name, **{"op": hvd.Sum, **options})
    assert all(one is other for one, other in zip(results, tensors, strict=True))
    for at, tensor in enumerate(tensors):
        wanted = value(at)[: tensor.numel()].to(tensor.dtype) * want
        assert torch.allclose(tensor.view(-1), wanted), (name, at, options)
    return tensors


def group():
    return [torch.empty_like(value(at)) for at in range(6)]


# A group is kept like its members would be, and described anew where anything about it changes.
group_step(group())
members = KEPT[GROUP + "group"].works
for _ in range(3):
    gone = weakref.ref(group_step(group())[2])
    assert KEPT[GROUP + "group"].works is members
gc.collect()
assert gone() is None, "nothing keeps a script's tensor alive"
for change in (
    lambda tensors: tensors[:4],
    lambda tensors: [*tensors[:5], torch.empty(3, 4)],
    lambda tensors: [tensor.double() for tensor in tensors],
    lambda tensors: tensors,
):
    before = KEPT[GROUP + "group"]
    group_step(change(group()))
    assert KEPT[GROUP + "group"] is not before
group_step(group(), want=2 * TOTAL, postscale_factor=2.0)
group_step(group(), want=TOTAL / SIZE, op=hvd.Average)
strided = [torch.cat([one, one])[::2].fill_(1) for one in group()]
handle = hvd.grouped_allreduce_async_(strided, name="group", op=hvd.Sum)
assert GROUP + "group" not in KEPT
assert all((one == SIZE).all() for one in hvd.synchronize(handle))
group_step(group(), name=None)
for _ in range(2 * (SIZE > 1)):
    group_step(group())
    odd = [torch.ones(4), torch.ones(4 + (RANK == SIZE - 1))]
    group_step([torch.ones(4), torch.ones(4)], name="odd")
    refused(
        hvd.HorovodInternalError,
        lambda odd=odd: hvd.grouped_allreduce_(odd, name="odd", op=hvd.Sum),
        "Mismatched tensor shapes",
    )

# New results are kept as those in place are. What a script has of them never changes, nor do its tensors.
sources = [value(at) * (RANK + 1) for at in range(4)] + [torch.full((70_000,), RANK + 1.0)]
wanted = [value(at) * TOTAL for at in range(4)] + [torch.full((70_000,), float(TOTAL))]
new = []
for turn in range(4):
    handles = [hvd.allreduce_async(one, name=f"new{at}", op=hvd.Sum) for at, one in enumerate(sources)]
    new.append([hvd.synchronize(handle) for handle in handles])
    new.append(hvd.synchronize(hvd.grouped_allreduce_async(sources, name="new", op=hvd.Sum)))
    works = [KEPT[key].works[0] for key in ("new0", "new4", GROUP + "new")]
    assert turn == 0 or all(one is other for one, other in zip(works, before, strict=True)), turn
    assert all(work.array is None and work.out is None for work in works)
    before = works
    for results in new:
        assert all(torch.equal(one, want) for one, want in zip(results, wanted, strict=True)), turn
assert len({one[4].data_ptr() for one in new}) == len(new)
assert all(torch.equal(one, want / TOTAL * (RANK + 1)) for one, want in zip(sources, wanted, strict=True))
for in_place in (True, False, True):
    mine = sources[1].clone()
    call = hvd.allreduce_async_ if in_place else hvd.allreduce_async
    result = hvd.synchronize(call(mine, name="new1", op=hvd.Sum))
    assert (result is mine) == in_place
    assert torch.equal(result, wanted[1])
weight = sources[1].clone().requires_grad_()
assert torch.equal(hvd.synchronize(hvd.allreduce_async(weight, name="new1", op=hvd.Sum)), wanted[1])

# What is packed is laid out before the ranks synchronize. In place they synchronize once more, when all sums
# are written; and so are operations like them that have other names.
flags = session().group.flags
for factor, meetings in ((1, (1, 0)), (100, (1, 1))) if session().engine.transport.name == "window" else ():
    tensors = [torch.empty(97 * factor) for _ in range(12)]
    for number in range(8):
        before = flags.meetings, flags._barriers
        for tensor in tensors:
            tensor.fill_(RANK + number)
        if number < 5:
            results = hvd.grouped_allreduce_(tensors, name=f"met.{factor}", op=hvd.Sum)
        else:
            results = hvd.grouped_allreduce(tensors, op=hvd.Sum)
        assert all((one == TOTAL + SIZE * (number - 1)).all() for one in results)
        found = flags.meetings - before[0], flags._barriers - before[1]
        assert number == 1 or (found == meetings) == (number > 1), (factor, number, found)

# No more are kept than CAPACITY, and none for the next life.
for at in range(CAPACITY // 512 + 2):
    handles = [hvd.allreduce_async_(torch.ones(1), name=f"n{at}.{each}", op=hvd.Sum) for each in range(512)]
    for handle in handles:
        hvd.synchronize(handle)
assert len(KEPT) <= CAPACITY + 512
hvd.shutdown()
refused(ValueError, lambda: hvd.allreduce_async_(torch.ones(1), name="n0.0", op=hvd.Sum))
hvd.init()
step(NAMES)
print("rank done", flush=True)
