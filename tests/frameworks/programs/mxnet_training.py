"""Training: after 200 steps all ranks have the weights of one process with the joint batch.

``mxnet_training.py MODE [STEPS]``: Gluon's trainer in several ways, or the Module API.
"""

import pickle
import sys

import mxnet as mx
import numpy as np

import ringleader.mxnet as hvd

MODE = sys.argv[1]
STEPS, BATCH = int(sys.argv[2]) if len(sys.argv) > 2 else 200, 8
hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
TRAINER = {
    "gluon": {},
    "groups": {"num_groups": 3},
    "predivide": {"gradient_predivide_factor": 2.0},
    "half": {"compression": hvd.Compression.fp16},
    "half_groups": {"compression": hvd.Compression.fp16, "num_groups": 2},
}


def batches(step):
    drawn = np.random.default_rng(step)
    images = drawn.normal(size=(SIZE, BATCH, 1, 8, 8)).astype("float32")
    return images, drawn.integers(0, 5, (SIZE, BATCH)).astype("float32")


def net():
    """A convolution and two layers, whose inputs' sizes are known with the first batch only."""
    layers = mx.gluon.nn.HybridSequential(prefix="net_")
    with layers.name_scope():
        layers.add(mx.gluon.nn.Conv2D(4, 3, activation="tanh"), mx.gluon.nn.Dense(16, activation="tanh"))
        layers.add(mx.gluon.nn.Dense(5))
    layers.initialize(mx.init.Xavier())
    layers.hybridize()
    return layers


def with_gluon(make_trainer, layers, images, labels):
    loss_of = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = make_trainer(layers.collect_params())
    for step in range(STEPS):
        with mx.autograd.record():
            loss = loss_of(layers(mx.nd.array(images(step))), mx.nd.array(labels(step)))
        loss.backward()
        trainer.step(len(loss))
    return [parameter.data().asnumpy() for _name, parameter in sorted(layers.collect_params().items())]


def gluon():
    words = {"learning_rate": 0.05, "momentum": 0.9}
    mx.random.seed(RANK)
    ours = net()
    hvd.broadcast_parameters(ours.collect_params(), root_rank=0)
    made = with_gluon(
        lambda params: hvd.DistributedTrainer(params, "sgd", dict(words), **TRAINER[MODE]),
        ours,
        lambda step: batches(step)[0][RANK],
        lambda step: batches(step)[1][RANK],
    )
    mx.random.seed(0)
    alone = with_gluon(
        lambda params: mx.gluon.Trainer(params, "sgd", dict(words), kvstore=None),
        net(),
        lambda step: batches(step)[0].reshape(-1, 1, 8, 8),
        lambda step: batches(step)[1].reshape(-1),
    )
    return made, alone


def with_module(optimizer, images, labels, *, wrap):
    """Train one module; the root's parameters are those of seed 0."""
    data = mx.sym.Variable("data")
    hidden = mx.sym.Activation(mx.sym.FullyConnected(data, num_hidden=16, name="one"), act_type="tanh")
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=5, name="two"), name="softmax")
    module = mx.mod.Module(symbol, context=mx.cpu())
    count = len(labels(0))
    module.bind([("data", (count, 64))], [("softmax_label", (count,))])
    module.init_params(mx.init.Xavier())
    if wrap:
        arguments, states = module.get_params()
        hvd.broadcast_parameters(arguments, root_rank=0)
        hvd.broadcast_parameters(states, root_rank=0)
        module.set_params(arguments, states)
    module.init_optimizer(kvstore=None, optimizer=optimizer)
    for step in range(STEPS):
        batch = mx.io.DataBatch([mx.nd.array(images(step))], [mx.nd.array(labels(step))])
        module.forward(batch, is_train=True)
        module.backward()
        module.update()
    return [array.asnumpy() for _name, array in sorted(module.get_params()[0].items())]


def module():
    words = {"learning_rate": 0.05, "momentum": 0.9}
    mx.random.seed(RANK)
    optimizer = hvd.DistributedOptimizer(mx.optimizer.create("sgd", rescale_grad=1 / BATCH, **words))
    stored = pickle.loads(pickle.dumps(optimizer))
    assert isinstance(stored, hvd.DistributedOptimizer) and stored.momentum == 0.9
    made = with_module(
        stored,
        lambda step: batches(step)[0][RANK].reshape(-1, 64),
        lambda step: batches(step)[1][RANK],
        wrap=True,
    )
    assert stored.idx2name and stored.idx2name is stored._optimizer.idx2name
    mx.random.seed(0)
    alone = with_module(
        mx.optimizer.create("sgd", rescale_grad=1 / (SIZE * BATCH), **words),
        lambda step: batches(step)[0].reshape(-1, 64),
        lambda step: batches(step)[1].reshape(-1),
        wrap=False,
    )
    return made, alone


ours, alone = module() if MODE == "module" else gluon()
far = 2e-2 if MODE.startswith("half") else 2e-4
for one, other in zip(ours, alone, strict=True):
    everybody = hvd.allgather(mx.nd.array(one[np.newaxis])).asnumpy()
    assert (everybody == everybody[0]).all()
    assert np.allclose(one, other, atol=far), np.abs(one - other).max()
hvd.shutdown()
print("rank done", flush=True)
