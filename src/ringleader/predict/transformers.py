"""Transformers by name or by their shape, and what one rank of them does in a step on a GPU. Pure.

`models` has convolutional networks and models that are known by totals. Of a layer that n tokens pass,
forward takes

    2·W·n / (peak · gemm) + 4·s·h·n / (peak · attention) + traffic · 2·h·n / memory_rate    seconds,

W: its weights, s: tokens of a sequence, h: hidden size; backward takes twice that, and recomputing forward
once more. gemm is what matrix products reach on a GPU, attention and traffic are fitted to published rows
(``gpus.toml``). The optimizer reads and writes 30 bytes of each parameter: gradient, master weights, two
moments, and the weights in bf16.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.predict.gpus import Gpu
from ringleader.predict.profile import FLOAT32, Profile, Segment
from ringleader.predict.strategies import Division

_OPTIMIZER_BYTES = 30
HALF = 2
"""Bytes of a number of weights and activations (bf16)."""


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """What a prediction needs to know of a transformer."""

    name: str
    layers: int
    hidden: int
    layer: float
    """Parameters of a layer."""
    used: float
    """Those of them that a token passes; fewer with experts."""
    vocabulary: int = 0
    tied: bool = True
    """The output layer has the weights of the embedding."""
    sequence: int = 2048
    """Tokens of a sequence."""
    source: str = ""

    @property
    def embedding(self) -> float:
        """Parameters of the embedding."""
        return float(self.vocabulary * self.hidden)

    @property
    def parameters(self) -> float:
        """Number of parameters."""
        return self.layers * self.layer + self.embedding * (1 if self.tied else 2)

    @property
    def flops(self) -> float:
        """Operations of a token in forward and backward, as model FLOPs utilization counts them.

        6 for each parameter, and 12·layers·h·s for attention (arXiv 2204.02311, appendix B).
        """
        weights = self.parameters - self.layers * (self.layer - self.used)
        return 6 * weights + 12.0 * self.layers * self.hidden * self.sequence


def _gpt(name: str, layers: int, hidden: int, vocabulary: int, sequence: int, source: str) -> Transformer:
    """Weights and biases of attention (4·h²) and of the multilayer perceptron (8·h²), two normalizations."""
    layer = 12.0 * hidden**2 + 13 * hidden
    return Transformer(
        name=name, layers=layers, hidden=hidden, layer=layer, used=layer, vocabulary=vocabulary,
        sequence=sequence, source=source,
    )  # fmt: skip


def _llama(
    name: str, layers: int, hidden: int, inner: int, shared: int, vocabulary: int, sequence: int, source: str,
    experts: int = 1, chosen: int = 1,
) -> Transformer:  # fmt: skip
    """Attention with keys and values for ``shared`` heads each, three matrices of h × ``inner`` an expert."""
    attention, expert = hidden**2 * (2 + 2 / shared), 3.0 * hidden * inner
    return Transformer(
        name=name, layers=layers, hidden=hidden, layer=attention + experts * expert,
        used=attention + chosen * expert, vocabulary=vocabulary, tied=False, sequence=sequence, source=source,
    )  # fmt: skip


_GPT_2, _GPT_3 = "Radford et al. 2019, table 2", "arXiv 2005.14165, table 2.1"
_LLAMA_2, _LLAMA_3 = "arXiv 2307.09288, appendix A.2.1", "arXiv 2407.21783, table 3"
_MPT = "https://github.com/mosaicml/llm-foundry/tree/8c8dd48f/scripts/train/yamls/pretrain"
TRANSFORMERS = {
    one.name: one
    for one in (
        _gpt("bert-large", 24, 1024, 30522, 512, "arXiv 1810.04805"),
        _gpt("gpt-2", 12, 768, 50257, 1024, _GPT_2),
        _gpt("gpt-2-xl", 48, 1600, 50257, 1024, _GPT_2),
        _gpt("gpt-3-175b", 96, 12288, 50257, 2048, _GPT_3),
        _gpt("mpt-7b", 32, 4096, 50368, 2048, _MPT),
        _gpt("mpt-30b", 48, 7168, 50368, 2048, _MPT),
        _llama("llama-2-7b", 32, 4096, 11008, 1, 32000, 4096, _LLAMA_2),
        _llama("llama-2-13b", 40, 5120, 13824, 1, 32000, 4096, _LLAMA_2),
        _llama("llama-2-70b", 80, 8192, 28672, 8, 32000, 4096, _LLAMA_2),
        _llama("codellama-34b", 48, 8192, 22016, 8, 32000, 16384, "arXiv 2308.12950"),
        _llama("llama-3-8b", 32, 4096, 14336, 4, 128256, 8192, _LLAMA_3),
        _llama("llama-3-70b", 80, 8192, 28672, 8, 128256, 8192, _LLAMA_3),
        _llama("llama-3-405b", 126, 16384, 53248, 16, 128256, 8192, _LLAMA_3),
        _llama("mistral-7b", 32, 4096, 14336, 4, 32000, 8192, "arXiv 2310.06825, table 1"),
        _llama("mixtral-8x7b", 32, 4096, 14336, 4, 32000, 8192, "arXiv 2401.04088, table 1", 8, 2),
    )
}


def of_shape(parameters: float, layers: int, hidden: int, sequence: int) -> Transformer:
    """Return the transformer of this many parameters, all of them in its layers."""
    layer = parameters / layers
    return Transformer(
        name=f"{parameters / 1e9:.3g}B transformer", layers=layers, hidden=hidden, layer=layer, used=layer,
        sequence=sequence, source="options",
    )  # fmt: skip


def profile_of(
    model: Transformer,
    gpu: Gpu,
    batch: float,
    division: Division,
    *,
    recompute: bool,
    mfu: float | None = None,
) -> Profile:
    """Return a step of one rank, of ``batch`` sequences that its group trains; of these it has its part.

    ``mfu``: part of the peak that the model's operations reach, in place of what published rows tell.
    """
    tokens, parts = batch * model.sequence, division.tensor * division.pipeline
    work = tokens / division.tensor
    if mfu is None:
        attention = 4.0 * model.sequence * model.hidden * work / (gpu.peak * gpu.attention)
        moved = gpu.traffic * HALF * model.hidden * work / gpu.memory_rate
        forward = 2 * model.used * work / (gpu.peak * gpu.gemm) + attention + moved
        head = 2 * model.embedding * work / (gpu.peak * gpu.gemm)
    else:
        rate = mfu * gpu.peak
        forward = (2 * model.used + 4.0 * model.sequence * model.hidden) * work / rate
        # As MFU counts them: embedding and output layer, where they are not tied, are two.
        head = 2 * model.embedding * (1 if model.tied else 2) * work / rate
    depth = -(-model.layers // division.pipeline)
    backward = (3 if recompute else 2) * forward
    segments = [Segment(size=int(FLOAT32 * model.layer / division.tensor), backward=backward)] * depth
    ends = int(FLOAT32 * model.embedding / parts)
    if ends:
        segments.insert(0, Segment(size=ends, backward=0.0))
        segments.append(Segment(size=0 if model.tied else ends, backward=2 * head / division.pipeline))
    state = model.parameters / parts / division.shards
    return Profile(
        name=model.name,
        batch=tokens / parts,
        before=depth * forward + head / division.pipeline,
        segments=tuple(segments),
        after=_OPTIMIZER_BYTES * state / gpu.memory_rate,
        unit="tokens",
        source=f"{model.source}; {gpu.name}: {gpu.source('gemm') if mfu is None else 'MFU given'}",
        activation=HALF * model.hidden * tokens,
        flops=model.flops,
    )


def activation_bytes(
    model: Transformer, batch: float, division: Division, micro_steps: int, *, recompute: bool
) -> float:
    """Return the bytes of activations on one rank: 34·s·b·h of a layer, 2·s·b·h of one that is recomputed.

    Korthikanti et al. 2022 (arXiv 2205.05198, equations 2 and 5, without the attention matrix, which
    FlashAttention does not keep), with sequence parallelism; the output layer keeps its scores in float32.
    A stage of a pipeline keeps as many micro-batches as there are stages behind it.
    """
    unit = batch * model.sequence * model.hidden / division.tensor
    depth = -(-model.layers // division.pipeline)
    kept = depth * min(division.pipeline, micro_steps) * (HALF if recompute else 34)
    ends = 4 * unit + 4.0 * batch * model.sequence * model.vocabulary / division.tensor
    return kept * unit + (34 * unit if recompute else 0.0) + ends / division.pipeline
