"""Where a training runs: on one device with plain torch, on several with Lightning Fabric.

Fabric is needed only for several devices and for other precisions than single; it comes with ``propersbi[devices]``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from propersbi.training.config import TrainConfig
from propersbi.types import InputError

__all__ = ["OneDevice", "find_devices"]

Value = TypeVar("Value")


@dataclass(frozen=True)
class OneDevice:
    """One device, with the names of Fabric.

    Arguments:
        device: The device.
    """

    device: torch.device
    global_rank: int = 0
    world_size: int = 1
    is_global_zero: bool = True

    def broadcast(self, value: Value) -> Value:
        """What the first device says."""
        return value

    def all_reduce(self, value: Tensor, reduce_op: str) -> Tensor:  # noqa: ARG002
        """The mean over all devices."""
        return value

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """The arithmetic of the forward pass."""
        yield

    def backward(self, loss: Tensor) -> None:
        """The backward pass."""
        loss.backward()


def find_devices(config: TrainConfig, device: str) -> Any:
    """What the training loop runs on: :class:`OneDevice`, or Fabric."""
    device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if config.devices == 1 and config.precision == "32-true":
        return _one_device("cuda" if device == "gpu" else device)
    try:
        from lightning_fabric import Fabric
    except ImportError:
        raise InputError(
            f"Training on {config.devices} devices with precision '{config.precision}' needs Lightning Fabric: "
            "install propersbi[devices]."
        ) from None
    strategy = "auto" if config.devices == 1 else "ddp"
    options: dict[str, Any] = {"devices": config.devices, "strategy": strategy, "precision": config.precision}
    try:
        fabric = Fabric(accelerator=device, **options)
    except (RuntimeError, ValueError, TypeError) as error:
        raise _refusal(config, device, error) from None
    fabric.launch()
    return fabric


def _one_device(name: str) -> OneDevice:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).cpu()  # a device may be known, but not there
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise _refusal(TrainConfig(), name, error) from None
    return OneDevice(device)


def _refusal(config: TrainConfig, device: str, error: BaseException) -> InputError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return InputError(f"Training cannot run on {config.devices} x '{device!s:.40}': {reason:.150}")
