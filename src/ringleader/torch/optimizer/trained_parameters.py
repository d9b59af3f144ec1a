"""Which of an optimizer's parameters take part in the exchange, as all ranks agreed.

A parameter takes part if it is trained on any rank. Scripts freeze and thaw parameters, and add some; a rank
that notices asks all others before anything else is exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Proposal = tuple[int, tuple[int, ...]]
"""How many parameters an optimizer has on a rank, and which of them (by index) are to take part for it."""


class TrainedParameters:
    """The parameters of one optimizer, in the order of its groups."""

    def __init__(self, *, drop_frozen: bool, keep_zeros: bool = False) -> None:
        """``drop_frozen`` says whether parameters that are frozen on all ranks leave the exchange again.

        With ``keep_zeros`` they do when their gradients are None, else also where these are zeros.
        """
        self.drop_frozen, self._keep_zeros = drop_frozen, keep_zeros
        self._all: list[torch.Tensor] = []
        self._inside: list[int] = []
        self._outside: list[int] = []
        self._agreed: set[int] = set()
        """Parameters, by identity, that take part although they may be frozen on this rank."""
        self._proposed: Proposal = (0, ())

    def choose(self, groups: Sequence[dict[str, Any]]) -> set[int]:
        """Look at the optimizer's parameters anew; return those that take part, by index."""
        self._all = [parameter for group in groups for parameter in group["params"]]
        inside = {at for at, one in enumerate(self._all) if one.requires_grad or id(one) in self._agreed}
        self._inside = sorted(inside)
        self._outside = [at for at in range(len(self._all)) if at not in inside]
        self._proposed = self._proposal()
        return inside

    def changed(self, groups: Sequence[dict[str, Any]]) -> bool:
        """Return whether this rank has something to tell since the ranks agreed."""
        if sum(len(group["params"]) for group in groups) != len(self._all):
            return True
        return self._proposal() != self._proposed

    def unknown_gradient(self, groups: Sequence[dict[str, Any]]) -> bool:
        """Return whether a parameter that the ranks have not agreed on has a gradient."""
        inside = {id(self._all[at]) for at in self._inside}
        return any(p.grad is not None and id(p) not in inside for group in groups for p in group["params"])

    def propose(self, groups: Sequence[dict[str, Any]]) -> Proposal:
        """Return what the other ranks are to know; it is sent with this."""
        self._all = [parameter for group in groups for parameter in group["params"]]
        known = {*self._inside, *self._outside}
        self._outside += [at for at in range(len(self._all)) if at not in known]
        self._inside = [at for at in self._inside if at < len(self._all)]
        self._outside = [at for at in self._outside if at < len(self._all)]
        self._proposed = self._proposal()
        return self._proposed

    def agree(self, proposals: Sequence[Proposal]) -> list[torch.Tensor] | None:
        """Take what all ranks told; return the parameters that take part from now on and did not before.

        None where all stays as it is. `ValueError`, on all ranks, where they have not as many parameters.
        """
        for rank, (count, _proposal) in enumerate(proposals):
            if count != proposals[0][0]:
                raise ValueError(
                    f"the optimizer's parameters differ between rank 0 and rank {rank}: "
                    f"{proposals[0][0]} and {count} parameters"
                )
        inside = {at for _count, proposal in proposals for at in proposal}
        if not self.drop_frozen:
            inside.update(self._inside)
        self._agreed = {id(self._all[at]) for at in inside}
        if inside == set(self._inside):
            return None
        return [self._all[at] for at in sorted(inside.difference(self._inside))]

    def _proposal(self) -> Proposal:
        everything = self._all
        found = [at for at in self._outside if everything[at].requires_grad]
        if self.drop_frozen:
            found += [at for at in self._inside if self._is_trained(everything[at])]
        return len(everything), tuple(sorted(found))

    def _is_trained(self, parameter: torch.Tensor) -> bool:
        """Return whether the parameter is trained here: frozen ones have no gradient, or one of zeros."""
        grad = parameter.grad
        if parameter.requires_grad or grad is None:
            return parameter.requires_grad
        return self._keep_zeros or bool((grad.coalesce().values() if grad.is_sparse else grad).any())
