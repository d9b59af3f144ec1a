"""Ranks that train for differing steps; ``mxnet_steps.py end|metric|join``: what rank 0 does then."""

import sys

import mxnet as mx

import ringleader.mxnet as hvd

hvd.init()
layer = mx.gluon.nn.Dense(2, in_units=3)
layer.initialize()
hvd.broadcast_parameters(layer.collect_params())
trainer = hvd.DistributedTrainer(layer.collect_params(), "sgd")
for _step in range(5 + 5 * hvd.rank()):
    with mx.autograd.record():
        loss = layer(mx.nd.ones((4, 3))).sum()
    loss.backward()
    trainer.step(4)
if sys.argv[1] == "metric":
    hvd.allreduce(mx.nd.ones(1), name="metric")
if sys.argv[1] == "join":
    assert hvd.join() == hvd.size() - 1
print("rank done", flush=True)
