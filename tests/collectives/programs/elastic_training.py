"""A training that continues whatever happens to its ranks. Arguments: what happens, as JSON, and the steps.

``{"killed": [[incarnation, step], …], "hosts": [step, …]}``: ranks that are killed at a step, before they
commit it, and steps after which all ranks hear that hosts have changed.
"""

import hashlib
import json
import os
import signal
import sys

import torch

import ringleader.torch as hvd

EVENTS, STEPS = json.loads(sys.argv[1]), int(sys.argv[2])
INCARNATION = int(os.environ.get("RINGLEADER_INCARNATION", "0"))
SHARD, KIND = bool(EVENTS.get("shard")), EVENTS.get("end", "kill")
DATASET = 96

hvd.init(process_sets=[[0, 1]] if EVENTS.get("sets") else None)
torch.manual_seed(INCARNATION)  # a rank that starts later has other weights and another shuffle
model = torch.nn.Sequential(
    torch.nn.Linear(16, 300), torch.nn.BatchNorm1d(300), torch.nn.ReLU(), torch.nn.Linear(300, 1)
)
optimizer = hvd.DistributedOptimizer(
    torch.optim.Adam(model.parameters(), lr=0.01 * hvd.size()),
    named_parameters=model.named_parameters(),
    shard=SHARD,
)
sampler = hvd.elastic.ElasticSampler(range(DATASET), seed=5)
inputs = torch.randn(DATASET, 16, generator=torch.Generator().manual_seed(1))
targets = inputs.sum(1, keepdim=True)
state = hvd.elastic.TorchState(
    model, optimizer, sampler=sampler, epoch=0, step=0, losses=[], visits=[], sizes=[], entered=0
)


def on_reset():
    for group in optimizer.param_groups:
        group["lr"] = 0.01 * hvd.size()


def die(step):
    if [INCARNATION, step] not in EVENTS["killed"]:
        return
    if KIND == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("this rank's fault")


@hvd.elastic.run
def train(state):
    state.entered += 1
    if EVENTS.get("sets"):
        check_sets()
    while state.step < STEPS:
        for at, indices in enumerate(torch.utils.data.BatchSampler(sampler, 4, drop_last=False)):
            loss = torch.nn.functional.mse_loss(model(inputs[indices]), targets[indices])
            loss.backward()
            if EVENTS.get("where") == "backward":
                die(state.step)
            optimizer.step()
            optimizer.zero_grad()
            sampler.record_batch(at, 4)
            state.losses.append(hvd.allreduce(loss.detach(), name="loss").item())
            state.visits.append(sorted(i for of in hvd.allgather_object(indices) for i in of))
            state.sizes.append(hvd.size())
            state.step += 1
            if EVENTS.get("where") != "backward":
                die(state.step)
            if state.step in EVENTS["hosts"]:
                state.on_hosts_updated(state._last_updated_timestamp + 1, EVENTS.get("update", 1))
            state.commit()
            if state.step == STEPS:
                break
        else:
            state.epoch += 1
            sampler.set_epoch(state.epoch)


def check_sets():
    pair = hvd.common_set
    if pair.included():
        total = hvd.allreduce(torch.ones(3), op=hvd.Sum, process_set=pair)
        assert torch.equal(total, torch.full((3,), float(pair.size()))), total


if EVENTS.get("sets"):
    from ringleader.adapters.process_sets import sets_of_script

    hvd.common_set = sets_of_script()[0][0]
state.register_reset_callbacks([on_reset])
train(state)
whole = hashlib.sha256()
for value in model.parameters():
    whole.update(value.detach().contiguous().numpy().tobytes())
whole.update(repr(optimizer.state_dict()["param_groups"][0]["lr"]).encode())
print(
    json.dumps(
        {
            "rank": hvd.rank(),
            "size": hvd.size(),
            "incarnation": INCARNATION,
            "pid": os.getpid(),
            "losses": state.losses,
            "visits": state.visits,
            "sizes": state.sizes,
            "entered": state.entered,
            "weights": whole.hexdigest(),
        }
    ),
    flush=True,
)
