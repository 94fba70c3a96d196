"""Checkpoints: everything a training remembers, in one file that is whole or absent.

A checkpoint belongs to one training. Its *identity* says to which: the configuration, the objective, the data. It is
continued only by a training of the same identity; how far and where to train may differ.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from propersbi.storage.config import encode
from propersbi.storage.files import write_with
from propersbi.training.config import TrainConfig
from propersbi.types import InputError

__all__ = ["check_identity", "config_identity", "digest", "read_checkpoint", "write_checkpoint"]

# These say how far or where to train, not what: a checkpoint may be continued with others.
CHANGEABLE = {"max_steps", "time_limit", "stopping", "checkpoint_every", "devices"}


def config_identity(config: TrainConfig) -> dict[str, Any]:
    """The fields of a training configuration that a checkpoint depends on."""
    names = [entry.name for entry in dataclasses.fields(config) if entry.name not in CHANGEABLE]
    return {name: encode(getattr(config, name)) for name in names}


def digest(arrays: Iterable[Tensor | np.ndarray | None]) -> str:
    """A short name for the content of some arrays.

    >>> digest([np.zeros(3)]) == digest([np.zeros(3)]), digest([np.zeros(3)]) == digest([np.ones(3)])
    (True, False)
    """
    content = hashlib.sha256()
    for array in arrays:
        if array is None:
            content.update(b"none")
            continue
        values = array.detach().cpu().numpy() if isinstance(array, Tensor) else array
        content.update(f"{values.dtype}{values.shape}".encode())
        content.update(np.ascontiguousarray(values).tobytes())
    return content.hexdigest()[:16]


def write_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write tensors and plain data."""
    write_with(path, lambda file: torch.save(dict(state), file))


def read_checkpoint(path: Path, device: torch.device) -> dict[str, Any]:
    """Read tensors and plain data; runs no code that came with the file."""
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except Exception as error:
        reason = str(error).split("\n")[0][:200]
        raise InputError(f"The checkpoint '{path}' cannot be read ({reason}): remove it to start anew.") from None
    return state


def check_identity(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another training."""
    digests = {"data", "validation"}  # last, as they follow from other entries such as the seed
    for key in sorted({*before, *now}, key=lambda key: (key in digests, key)):
        if before.get(key) == now.get(key):
            continue
        if key == "data":
            raise InputError(f"'{path}' was trained on other simulations: remove it to start anew.")
        raise InputError(
            f"'{path}' was trained with {key} = {_short(before.get(key))}, not {_short(now.get(key))}: "
            "remove it to start anew."
        )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."
