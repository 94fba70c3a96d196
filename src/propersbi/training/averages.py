"""The weights and buffers of networks, and what optimisers remember, as plain lists of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

__all__ = ["MOMENTS", "load", "load_moments", "mix", "moments", "moments_like", "places", "swapped", "tensors"]

Places: TypeAlias = list[tuple[dict[str, Any], str]]

MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what AdamW remembers of a weight


def tensors(network: nn.Module) -> list[Tensor]:
    """Weights and buffers, copied."""
    return [tensor.detach().clone() for tensor in network.state_dict().values()]


def load(network: nn.Module, copies: list[Tensor]) -> None:
    """Give the network the weights and buffers that :func:`tensors` copied."""
    network.load_state_dict(dict(zip(network.state_dict(), copies, strict=True)))


def places(network: nn.Module) -> Places:
    """Where the network keeps what :func:`tensors` copies: to look there is much quicker than to ask for its state."""
    found = []
    for name in network.state_dict():
        module, _, key = name.rpartition(".")
        owner = network.get_submodule(module)
        found.append((owner._parameters if key in owner._parameters else owner._buffers, key))
    return found


@torch.no_grad()
def mix(averages: list[Tensor], current: Places, share: float) -> None:
    """Move the averages a share of the way to the network; counters and other whole numbers are just taken over."""
    pairs = list(zip(averages, [owner[key] for owner, key in current], strict=True))
    moving = [(a, b) for a, b in pairs if a.is_floating_point()]
    torch._foreach_lerp_([a for a, _ in moving], [b for _, b in moving], share)
    for average, tensor in pairs:
        if not average.is_floating_point():
            average.copy_(tensor)


@contextmanager
def swapped(networks: Mapping[str, nn.Module], others: Mapping[str, list[Tensor]]) -> Iterator[None]:
    """Give the networks other weights for a while."""
    own = {name: tensors(network) for name, network in networks.items()}
    for name, network in networks.items():
        load(network, others[name])
    try:
        yield
    finally:
        for name, network in networks.items():
            load(network, own[name])


def moments(optimizer: torch.optim.Optimizer) -> tuple[list[Tensor], list[bool]]:
    """What AdamW remembers, weight by weight, and of which weights: of those without a gradient, nothing."""
    weights = _weights(optimizer)
    known = [weight in optimizer.state for weight in weights]
    return [
        optimizer.state[weight][name]
        for weight, is_known in zip(weights, known, strict=True)
        if is_known
        for name in MOMENTS
    ], known


def load_moments(optimizer: torch.optim.Optimizer, copies: list[Tensor], known: list[bool]) -> None:
    """Give an optimiser what :func:`moments` gave."""
    parts = iter(copies)
    for weight, is_known in zip(_weights(optimizer), known, strict=True):
        if is_known:
            optimizer.state[weight] = {name: next(parts) for name in MOMENTS}


def moments_like(network: nn.Module, known: list[bool]) -> list[Tensor]:
    """Tensors of the shapes and types of what an optimiser remembers."""
    weights = [weight for weight, is_known in zip(network.parameters(), known, strict=True) if is_known]
    return [tensor for weight in weights for tensor in (torch.zeros((), dtype=torch.float32), weight, weight)]


def _weights(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]
