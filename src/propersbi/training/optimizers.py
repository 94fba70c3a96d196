r"""Optimisers: AdamW, and SOAP, which is AdamW in the principal axes of each layer's gradients.

For a layer with weights :math:`W` (outputs x inputs) and gradient :math:`G`, the running covariance of the gradients
over the inputs, :math:`C \approx E[G^\top G] = Q \Lambda Q^\top`, has axes :math:`Q` along which they are uncorrelated.
Adam scales every coordinate by itself, which is right where coordinates are uncorrelated, so it works there:

.. math:: W \leftarrow W - \eta\; \mathrm{Adam}(G\, Q)\; Q^\top.

The axes change slowly: they are brought up to date every few steps, by one step of orthogonal iteration. Layers of one
shape share their matrix products. Biases, very large layers and everything that is no matrix are left to AdamW.

References:
    Vyas et al., SOAP: Improving and Stabilizing Shampoo using Adam, 2024, https://arxiv.org/abs/2409.11321 (here with
    axes of the inputs only, which costs less and gains nearly as much)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from propersbi.training.config import TrainConfig

__all__ = ["Optimizer", "build_optimizer"]

MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what AdamW remembers of a weight
LARGEST = 512  # inputs or outputs of a layer that is rotated: larger ones would take too long
UPDATE_COVARIANCE, UPDATE_AXES = 2, 20  # steps between two updates
FORGET = 0.1  # share of the covariance that is new after an update
NEGLIGIBLE = 1e-5  # share of the largest variance below which differences are rounding errors


class Optimizer(torch.optim.AdamW):
    """AdamW for some weights, and AdamW in rotated coordinates for others.

    Arguments:
        weights: All weights to train.
        rotated: Those among them that are matrices to be rotated.
        options: Of :class:`torch.optim.AdamW`.
    """

    def __init__(self, weights: Sequence[nn.Parameter], rotated: Sequence[nn.Parameter] = (), **options: Any) -> None:
        self.weights, self.layers = list(weights), _by_shape(rotated)
        chosen = {id(weight) for weight in rotated}
        plain = [weight for weight in weights if id(weight) not in chosen]
        self.moves = [torch.zeros_like(torch.stack(layers)) for layers in self.layers]  # in rotated coordinates
        self.axes = [_squares(move) + torch.eye(move.shape[-1]).to(move) for move in self.moves]
        self.covariances = [_squares(move) for move in self.moves]
        self.steps = 0
        super().__init__([*plain, *self.moves], fused=True, **options)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all weights."""
        for weight in self.weights:
            weight.grad = None if set_to_none or weight.grad is None else weight.grad.zero_()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step; the gradients stay as they are."""
        for place, layers in enumerate(self.layers):
            gradient = torch.stack([_gradient(layer) for layer in layers])
            self._update(place, gradient)
            self.moves[place].grad = gradient @ self.axes[place]
        super().step(closure)
        for layers, move, axes in zip(self.layers, self.moves, self.axes, strict=True):
            group = self.param_groups[0]
            torch._foreach_mul_(layers, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(layers, (move @ axes.mT).unbind())
            move.zero_()
        self.steps += 1

    def _update(self, place: int, gradient: Tensor) -> None:
        """Bring the covariance of the gradients and its axes up to date."""
        covariance = self.covariances[place]
        if self.steps % UPDATE_COVARIANCE == 0:
            covariance.lerp_(gradient.mT @ gradient, FORGET if self.steps else 1.0)
        if self.steps and self.steps % UPDATE_AXES == 0:
            self._rotate(place, covariance)

    def _rotate(self, place: int, covariance: Tensor) -> None:
        """Turn the axes towards those of the covariance, the longest first, and the moments with them."""
        axes, state = self.axes[place], self.state[self.moves[place]]
        stretched = covariance @ axes
        variances = (axes * stretched).sum(-2, keepdim=True)
        stretched += NEGLIGIBLE * variances.amax(-1, keepdim=True) * axes  # axes without a gradient stay as they are
        order = variances.argsort(dim=-1, descending=True, stable=True)
        turned = torch.linalg.qr(stretched.gather(-1, order.expand_as(stretched)))[0]
        squares = state["exp_avg_sq"]
        state["exp_avg_sq"].copy_(squares.gather(-1, order.expand_as(squares)))
        state["exp_avg"].copy_(state["exp_avg"] @ (axes.mT @ turned))
        axes.copy_(turned)

    def memory(self) -> tuple[list[Tensor], list[bool]]:
        """What it remembers, and of which weights there are moments: of those without a gradient, none."""
        known = [weight in self.state for weight in self._all()]
        found = [
            self.state[weight][name]
            for weight, is_known in zip(self._all(), known, strict=True)
            if is_known
            for name in MOMENTS
        ]
        return [*found, *self._rotations(), torch.tensor(self.steps)], known

    def memory_like(self, known: list[bool]) -> list[Tensor]:
        """Tensors of the shapes and types of what it remembers."""
        weights = [weight for weight, is_known in zip(self._all(), known, strict=True) if is_known]
        found = [tensor for weight in weights for tensor in (torch.zeros((), dtype=torch.float32), weight, weight)]
        return [*found, *self._rotations(), torch.tensor(self.steps)]

    def load_memory(self, copies: list[Tensor], known: list[bool]) -> None:
        """Remember what :meth:`memory` gave."""
        parts = iter(copies)
        for weight, is_known in zip(self._all(), known, strict=True):
            if is_known:
                self.state[weight] = {name: next(parts) for name in MOMENTS}
        for tensor in self._rotations():
            tensor.copy_(next(parts))
        self.steps = int(next(parts))

    def _all(self) -> list[Tensor]:
        return [weight for group in self.param_groups for weight in group["params"]]

    def _rotations(self) -> list[Tensor]:
        return [*self.axes, *self.covariances]


def build_optimizer(network: nn.Module, config: TrainConfig) -> Optimizer:
    """The optimiser of a training configuration."""
    weights = list(network.parameters())
    rotated = [weight for weight in weights if config.optimizer == "soap" and _is_layer(weight)]
    betas = config.betas[0], config.betas[1]
    return Optimizer(weights, rotated, lr=config.learning_rate, betas=betas, weight_decay=config.weight_decay)


def _is_layer(weight: Tensor) -> bool:
    return weight.ndim == 2 and min(weight.shape) > 1 and max(weight.shape) <= LARGEST and weight.requires_grad


def _by_shape(weights: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
    """Weights of the same shape together."""
    groups: dict[tuple[int, ...], tuple[Tensor, ...]] = {}
    for weight in weights:
        groups[tuple(weight.shape)] = (*groups.get(tuple(weight.shape), ()), weight)
    return list(groups.values())


def _squares(move: Tensor) -> Tensor:
    """A matrix of inputs x inputs for each layer."""
    return move.new_zeros(len(move), move.shape[-1], move.shape[-1])


def _gradient(layer: Tensor) -> Tensor:
    return torch.zeros_like(layer) if layer.grad is None else layer.grad
