"""Transformers: known totals, operations of a token, and what strategies exchange and keep."""

from dataclasses import replace

import pytest

from ringleader.predict.gpus import gpus
from ringleader.predict.measured_job import OnGpu
from ringleader.predict.profile import Profile, even_segments
from ringleader.predict.step_model import Setup, division_of, predict
from ringleader.predict.strategies import BACKWARD, FORWARD, NOTHING, Division, exchanges, state_bytes
from ringleader.predict.transformers import TRANSFORMERS, activation_bytes, of_shape, profile_of

H100 = gpus()["h100"]
ALONE = Division(ranks=1, per_host=1)


def h100s(**change: object) -> Setup:
    between = H100.between()
    assert between is not None
    setup = Setup(network=H100.network(between, 8), per_host=8, algorithm="nccl", batch=1.0)
    return replace(setup, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "billions"),
    [("bert-large", 0.334), ("gpt-2", 0.124), ("gpt-2-xl", 1.558), ("gpt-3-175b", 175), ("mpt-7b", 6.65),
     ("llama-2-7b", 6.74), ("llama-2-13b", 13.0), ("llama-2-70b", 69.0), ("codellama-34b", 33.7),
     ("llama-3-8b", 8.03), ("llama-3-70b", 70.6), ("llama-3-405b", 405.9), ("mistral-7b", 7.24),
     ("mixtral-8x7b", 46.7), ("mpt-30b", 30.0)],
)  # fmt: skip
def test_models_have_the_parameters_that_they_are_known_for(name: str, billions: float) -> None:
    assert TRANSFORMERS[name].parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert TRANSFORMERS[name].source


def test_operations_of_a_token_are_those_of_utilization() -> None:
    model = TRANSFORMERS["mpt-7b"]
    assert model.flops == pytest.approx(6 * model.parameters + 12 * 32 * 4096 * 2048)
    expert = TRANSFORMERS["mixtral-8x7b"]
    assert expert.flops < 6 * 0.35 * expert.parameters  # two of eight experts: 12.9 of 46.7 billion
    nameless = of_shape(7e9, 32, 4096, 2048)
    assert nameless.parameters == pytest.approx(7e9) and nameless.name == "7B transformer"


def test_tensor_and_pipeline_parallel_ranks_have_their_part() -> None:
    def profile(division: Division = ALONE, recompute: bool = False) -> Profile:
        return profile_of(TRANSFORMERS["llama-3-70b"], H100, 1.0, division, recompute=recompute)

    whole, part = profile(), profile(Division(ranks=32, per_host=8, tensor=8, pipeline=4))
    assert part.size == pytest.approx(whole.size / 32, rel=0.01)
    assert part.before + part.backward == pytest.approx((whole.before + whole.backward) / 32, rel=0.01)
    assert profile(recompute=True).backward == pytest.approx(1.5 * whole.backward, rel=0.05)


JOB = Profile(name="j", batch=1, before=1.0, segments=even_segments(4000, 2.0, 10), activation=64)


def listed(division: Division, micro_steps: int = 1) -> list[tuple[str, float, int, int, str, int]]:
    found = exchanges(JOB, division, (), 4, micro_steps)
    return [(one.collective, one.size, one.group.ranks, one.times, one.hidden_by, one.every) for one in found]


def test_each_strategy_is_a_list_of_exchanges() -> None:
    fsdp = Division(ranks=64, per_host=8, strategy="fsdp")
    scattered, gathered = ("reducescatter", 400, 64, 10, BACKWARD), ("allgather", 200, 64, 10)
    assert listed(fsdp, 2) == [(*scattered, 2), (*gathered, FORWARD, 2), (*gathered, BACKWARD, 2)]
    assert listed(replace(fsdp, strategy="zero-2"), 2) == [(*scattered, 2), (*gathered, FORWARD, 1)]
    assert listed(replace(fsdp, strategy="zero-1"), 2) == [(*scattered, 1), (*gathered, NOTHING, 1)]
    hybrid = listed(replace(fsdp, shard_ranks=8))
    assert hybrid[0] == ("reducescatter", 400, 8, 10, BACKWARD, 1)
    assert hybrid[-1] == ("allreduce", 50, 8, 10, BACKWARD, 1)
    both = listed(Division(ranks=64, per_host=8, strategy="fsdp", tensor=8, pipeline=2), 4)
    assert both[:2] == [("allreduce", 64, 8, 40, NOTHING, 4), ("sendrecv", 8, 2, 2, NOTHING, 4)]
    assert both[2][2] == 4


def test_groups_are_where_their_ranks_are() -> None:
    division = Division(ranks=512, per_host=8, tensor=8)
    data = division.group(64, 8)
    assert (division.group(8, 1).hosts, data.hosts, data.per_host, data.beside) == (1, 64, 1, 8)
    hybrid = Division(ranks=512, per_host=8, strategy="fsdp", shard_ranks=8)
    assert (hybrid.group(8, 1).hosts, hybrid.group(64, 8).hosts) == (1, 64)
    with pytest.raises(ValueError, match="groups of 16"):
        division_of(24, h100s(tensor=8, pipeline=2))
    assert division_of(1, h100s(tensor=8)).tensor == 1


def test_memory_of_the_state_is_what_zero_says() -> None:
    # Of 16 bytes of a parameter 64 ranks share (ZeRO, figure 1): 16, 4 + 12/64, 2 + 14/64, 16/64.
    known = {"ddp": 16, "zero-1": 4.1875, "zero-2": 2.21875, "zero-3": 0.25, "fsdp": 0.25}
    for strategy, per_parameter in known.items():
        found = dict(state_bytes(JOB, Division(ranks=64, per_host=8, strategy=strategy)))
        gathered = found.pop("gathered", 0.0)
        assert sum(found.values()) == pytest.approx(1000 * per_parameter)
        assert gathered == (400 if strategy in ("zero-3", "fsdp") else 0)


def test_activations_are_those_of_korthikanti() -> None:
    model = replace(TRANSFORMERS["gpt-3-175b"], vocabulary=0)

    def kept(ranks: int = 1, micro_steps: int = 1, recompute: bool = False, **parts: int) -> float:
        division = Division(ranks=ranks, per_host=8, **parts)
        return activation_bytes(model, 1.0, division, micro_steps, recompute=recompute) / (2048 * 12288)

    assert kept() == pytest.approx(34 * 96 + 4)
    assert kept(8, tensor=8) == pytest.approx((34 * 96 + 4) / 8)
    assert kept(recompute=True) == pytest.approx(2 * 96 + 34 + 4)
    # The first stage keeps eight micro-batches.
    assert kept(8, 16, pipeline=8) == pytest.approx(34 * 96 + 0.5)


def test_a_pipeline_is_idle_while_it_fills() -> None:
    job = OnGpu(model=TRANSFORMERS["llama-3-70b"], gpu=H100)
    setup = h100s(strategy="zero-1", tensor=8, pipeline=8, micro_steps=8)
    at = predict(job.profile(setup, 512), setup, 512)
    assert at.idle / (at.compute + at.idle) == pytest.approx(7 / 15, rel=0.03)
    more = replace(setup, micro_steps=64)
    assert predict(job.profile(more, 512), more, 512).efficiency > at.efficiency


def test_shards_of_many_ranks_need_less_memory_and_exchange_more() -> None:
    job = OnGpu(model=TRANSFORMERS["llama-3-8b"], gpu=H100)
    ddp, fsdp = h100s(wire="bf16"), h100s(strategy="fsdp", wire="bf16")
    hybrid = replace(fsdp, shard_ranks=8)

    def exchange(setup: Setup, ranks: int) -> float:
        return predict(job.profile(setup, ranks), setup, ranks).exchange

    assert job.memory(ddp, 64) > H100.memory > job.memory(fsdp, 64)
    assert exchange(fsdp, 64) > exchange(ddp, 64)
    assert job.memory(fsdp, 512) < job.memory(hybrid, 512) and exchange(hybrid, 512) < exchange(fsdp, 512)


def test_hiding_an_exchange_costs_computing() -> None:
    job = OnGpu(model=TRANSFORMERS["llama-3-8b"], gpu=H100)
    free, shared = h100s(strategy="fsdp"), h100s(strategy="fsdp", contention=0.3)
    a, b = (predict(job.profile(one, 64), one, 64) for one in (free, shared))
    gradients, weights = (63 / 64 * part * job.profile(free, 64).size for part in (1, 0.5))
    moved = (gradients + 2 * weights) / free.network.within.rate
    assert b.exposed - a.exposed == pytest.approx(0.3 * moved * (1 - a.exposed / a.exchange), rel=0.01)
