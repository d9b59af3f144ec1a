"""PowerSGD: every matrix as a product of two thin ones; what that misses goes with the next step's gradient.

Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression", NeurIPS 2019. One power
iteration per step, begun with the last step's result: P = M·Q, summed over the ranks and made orthonormal;
Q = Mᵀ·P, summed; the result is P·Qᵀ. A tensor of more dimensions is a matrix of its first one against the
others. Tensors for which this would send no less (vectors) go as they are. Matrices of half types are
computed in float32: PyTorch has no decomposition for the others, and what is kept would be lost in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ringleader.engine.group_engine import Engine
from ringleader.torch.compression.reducer import ErrorFeedbackCompressor, Reducer, residual_dtype
from ringleader.torch.engine_operations import by_dtype_and_device, sum_over_ranks
from ringleader.torch.gradient_config import GradientConfig


@dataclass(frozen=True)
class PowerSGD(ErrorFeedbackCompressor):
    """Send every matrix as a product of two thin ones, and what that misses in a later step.

    Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression", NeurIPS 2019.
    """

    rank: int
    """Columns of the thin matrices, at least 1."""

    def __post_init__(self) -> None:
        """Check the rank."""
        if self.rank < 1:
            raise ValueError("PowerSGD needs a rank of at least 1")

    def reducer(self) -> PowerSgdReducer:
        """See `ErrorFeedbackCompressor`."""
        return PowerSgdReducer(self.rank)


class PowerSgdReducer(Reducer):
    """What is known of other parameters is forgotten."""

    def __init__(self, rank: int) -> None:
        """Take the number of columns."""
        self._rank = rank
        self._before: Engine | None = None
        self._thin: dict[torch.Tensor, torch.Tensor] = {}
        """Parameter → the last step's Q, the same on all ranks."""
        self._residuals: dict[torch.Tensor, torch.Tensor] = {}
        """Parameter → what was not sent yet of its gradient, as a matrix."""

    def begin(self, engine: Engine, config: GradientConfig, parameters: Sequence[torch.Tensor]) -> None:
        """See `Reducer`."""
        self._factor = config.factor_on_sum(engine.ranks.size)
        if self._before is not engine:
            self._thin.clear()  # there may be ranks that did not exist before
        self._before = engine
        super().begin(engine, config, parameters)
        for known in (self._thin, self._residuals):
            for gone in known.keys() - set(parameters):
                del known[gone]

    def residual(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """Return what was not sent yet of a parameter's gradient, None where nothing is kept."""
        matrix = self._residuals.get(parameter)
        return None if matrix is None else matrix.view(parameter.shape)

    def reduce(self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Send thin matrices for matrices, and everything else as it is."""
        matrices: dict[int, torch.Tensor] = {}
        for at, gradient in enumerate(gradients):
            if self._pays(gradient):
                matrices[at] = self._matrix(parameters[at], gradient)
        left = {at: matrix @ self._basis(at, parameters[at], matrix) for at, matrix in matrices.items()}
        self._sum_all(left, "p")
        for at, columns in left.items():
            left[at] = torch.linalg.qr(columns).Q
        right = {at: matrices[at].t() @ columns for at, columns in left.items()}
        for at, matrix in matrices.items():
            self._residuals[parameters[at]] = matrix.addmm_(left[at], right[at].t(), alpha=-1)
        whole = {at: one.reshape(-1).clone() for at, one in enumerate(gradients) if at not in matrices}
        both = {**right, **whole}
        self._sum_all(both, "q")
        for at, gradient in enumerate(gradients):
            if at in matrices:
                self._thin[parameters[at]] = both[at]
                gradient.copy_((left[at] @ both[at].t()).view(gradient.shape))
            else:
                gradient.copy_(both[at].view(gradient.shape))
        self._forget_broken([parameters[at] for at in matrices])

    def _matrix(self, parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        matrix = gradient.reshape(gradient.shape[0], -1).to(residual_dtype(gradient.dtype), copy=True)
        residual = self._residuals.get(parameter)
        return matrix if residual is None else matrix.add_(residual)

    def _forget_broken(self, parameters: Sequence[torch.Tensor]) -> None:
        """Start again where a gradient was not finite on some rank: with a scaled loss that is usual."""
        if not parameters:
            return
        # Q is the same on all ranks, so they start again together.
        sums = [self._thin[parameter].sum() for parameter in parameters]
        if all(bool(one.isfinite()) for one in sums):
            return
        for parameter, one in zip(parameters, sums, strict=True):
            if not one.isfinite():
                del self._thin[parameter], self._residuals[parameter]

    def _pays(self, gradient: torch.Tensor) -> bool:
        if gradient.dim() < 2 or not gradient.dtype.is_floating_point or gradient.numel() == 0:
            return False
        rows, columns = gradient.shape[0], gradient.numel() // gradient.shape[0]
        return self._rank * (rows + columns) < rows * columns

    def _basis(self, at: int, parameter: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
        """Return the last step's Q, at first random numbers that are the same on every rank."""
        thin = self._thin.get(parameter)
        if thin is None:
            # Made on the CPU: the generators of devices give other numbers.
            generator = torch.Generator().manual_seed(at)
            thin = torch.randn(matrix.shape[1], self._rank, generator=generator, dtype=matrix.dtype)
        thin = thin.to(matrix.device, matrix.dtype)
        # Only the space that its columns span counts; their length is of no interest.
        basis: torch.Tensor = torch.linalg.qr(thin).Q
        return basis

    def _sum_all(self, tensors: dict[int, torch.Tensor], what: str) -> None:
        """Sum tensors over the ranks, those of one type at once, and replace them by the result."""
        indices = list(tensors)
        for number, those in enumerate(by_dtype_and_device(list(tensors.values()))):
            mine = [indices[one] for one in those]
            flat = torch.cat([tensors[at].reshape(-1) for at in mine])
            sum_over_ranks(
                self._engine, flat, f"{self._config.serial}.powersgd.{number}.{what}", self._factor
            )
            parts = torch.split(flat, [tensors[at].numel() for at in mine])
            for at, part in zip(mine, parts, strict=True):
                tensors[at] = part.view(tensors[at].shape)
