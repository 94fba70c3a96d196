"""Where a training runs: on one device with plain torch, on several with Lightning Fabric.

Fabric is needed only for several devices and for other precisions than single; it comes with ``propersbi[devices]``. It
starts the script again, once for each further device; the processes train together from where the script trains.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from propersbi.training.config import TrainConfig
from propersbi.types import InputError

__all__ = [
    "LostProcessError",
    "OneDevice",
    "SeveralDevices",
    "find_devices",
    "is_first_process",
    "wait_for_all",
]

Value = TypeVar("Value")


class LostProcessError(RuntimeError):
    """Another process of a training has ended."""


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

    def mean(self, value: Tensor) -> Tensor:
        """The mean over all devices."""
        return value

    @contextmanager
    def autocast(self) -> Iterator[None]:
        """The arithmetic of the forward pass."""
        yield

    def backward(self, loss: Tensor) -> None:
        """The backward pass."""
        loss.backward()


@dataclass(frozen=True)
class SeveralDevices:
    """One of several processes with a device each, or a device with another precision.

    Arguments:
        fabric: What connects them.
    """

    fabric: Any

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        return torch.device(self.fabric.device)

    @property
    def global_rank(self) -> int:
        """The number of this process."""
        return int(self.fabric.global_rank)

    @property
    def world_size(self) -> int:
        """How many there are."""
        return int(self.fabric.world_size)

    @property
    def is_global_zero(self) -> bool:
        """Whether this process is the first."""
        return self.global_rank == 0

    def broadcast(self, value: Value) -> Value:
        """What the first process says."""
        with _together():
            said: Value = self.fabric.broadcast(value)
            return said

    def mean(self, value: Tensor) -> Tensor:
        """The mean over all processes."""
        with _together():
            mean: Tensor = self.fabric.all_reduce(value, reduce_op="mean")
            return mean

    def autocast(self) -> Any:
        """The arithmetic of the forward pass."""
        return self.fabric.autocast()

    def backward(self, loss: Tensor) -> None:
        """The backward pass."""
        self.fabric.backward(loss)


@contextmanager
def _together() -> Iterator[None]:
    """What needs all processes; one that has ended is an error of all others."""
    try:
        yield
    except RuntimeError as error:
        raise LostProcessError(
            "Another process of this training has ended, and so does this one. With a folder, running again continues "
            "from the last checkpoint, on any number of devices."
        ) from error


def is_first_process() -> bool:
    """Whether this process writes and reports: of several that train together, one does."""
    if _are_connected():
        return torch.distributed.get_rank() == 0
    return os.environ.get("LOCAL_RANK", "0") == "0"


def wait_for_all(devices: int) -> None:
    """Wait until all processes that have trained together on so many devices come here."""
    if devices > 1 and _are_connected():
        with _together():
            torch.distributed.barrier()


def _are_connected() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def find_devices(config: TrainConfig, device: str) -> OneDevice | SeveralDevices:
    """What the training loop runs on."""
    if not isinstance(device, str | torch.device):
        raise InputError(f"'device' must be a name such as 'cpu', got {device!r:.80}.")
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
    return SeveralDevices(fabric)


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
