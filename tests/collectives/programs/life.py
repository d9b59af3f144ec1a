"""Again and again in one process, with arrays that outlive the engine."""

import torch

import ringleader.torch as hvd

kept = []
for life in range(10):
    assert not hvd.is_initialized()
    hvd.init()
    hvd.init()
    assert hvd.allreduce(torch.full((300_000,), float(life + hvd.rank())), op=hvd.Sum)[5].item() == sum(
        life + rank for rank in range(hvd.size())
    )
    model = torch.nn.Linear(4, 4)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    optimizer.zero_grad()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    kept.append(model.weight.grad.fill_(life))
    handle = hvd.allreduce_async(torch.ones(3), name="x", op=hvd.Sum)
    try:
        hvd.allreduce_async(torch.ones(3), name="x", op=hvd.Sum)
    except ValueError:
        pass
    else:
        assert hvd.size() == 1 or hvd.poll(handle), "one name twice at the same time went through"
    hvd.synchronize(handle)
    hvd.shutdown()
    hvd.shutdown()
    for question in (hvd.rank, hvd.size, hvd.local_rank, hvd.cross_size):
        try:
            question()
        except ValueError as error:
            assert "has not been initialized" in str(error)
        else:
            raise AssertionError("a question about ranks was answered without any")
    try:
        hvd.allreduce(torch.ones(1))
    except hvd.HorovodInternalError:
        pass
    else:
        raise AssertionError("an operation went through without ranks")
assert all(bool((one == life).all()) for life, one in enumerate(kept))
print("rank done", flush=True)
