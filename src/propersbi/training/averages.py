"""The weights and buffers of networks as plain lists of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

__all__ = ["load", "mix", "places", "swapped", "tensors"]

Places: TypeAlias = list[tuple[dict[str, Any], str]]


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
