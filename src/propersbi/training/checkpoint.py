"""Checkpoints: everything a training remembers, in one file that is whole or absent.

A checkpoint belongs to one training. Its *identity* says to which: the configuration, the objective, the data. It is
continued only by a training of the same identity; how far and where to train may differ.

The file holds tensors (safetensors) and plain data (JSON), and begins with a SHA-256 checksum of the rest. Whatever is
wrong with it is an :class:`~propersbi.types.InputError`, before anything of it is used.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from propersbi.storage.config import encode
from propersbi.storage.files import read_bytes, write_bytes
from propersbi.training.config import TrainConfig
from propersbi.training.history import History
from propersbi.types import InputError

__all__ = ["Checkpoint", "config_identity", "digest", "read_checkpoint", "write_checkpoint"]

MAGIC = b"propersbi checkpoint 2\n"
STATE = "state"  # the one entry of the metadata

# These say how far or where to train, not what: a checkpoint may be continued with others.
CHANGEABLE = {"max_steps", "time_limit", "stopping", "checkpoint_every", "devices"}


def config_identity(config: TrainConfig) -> dict[str, Any]:
    """The fields of a training configuration that a checkpoint depends on."""
    names = [entry.name for entry in dataclasses.fields(config) if entry.name not in CHANGEABLE]
    return {name: encode(getattr(config, name)) for name in names}


def digest(parts: Iterable[Tensor | np.ndarray | str | None]) -> str:
    """A short name for the content of some arrays.

    >>> digest([np.zeros(3)]) == digest([np.zeros(3)]), digest([np.zeros(3)]) == digest([np.ones(3)])
    (True, False)
    """
    content = hashlib.sha256()
    for part in parts:
        if part is None or isinstance(part, str):
            content.update((part or "none").encode())
            continue
        values = np.ascontiguousarray(part.detach().cpu().numpy() if isinstance(part, Tensor) else part)
        content.update(f"{values.dtype}{values.shape}".encode())
        content.update(values.reshape(-1).view(np.uint8).data)
    return content.hexdigest()[:16]


def write_checkpoint(path: Path, tensors: Mapping[str, Sequence[Tensor]], state: Mapping[str, Any]) -> None:
    """Write lists of tensors, by their names, and plain data."""
    flat = {
        f"{name}/{i:06d}": tensor.detach().cpu().contiguous()
        for name, values in tensors.items()
        for i, tensor in enumerate(values)
    }
    text = json.dumps({"state": state, "names": list(tensors)})  # with the order of its keys, as they were
    content = save_tensors(flat, metadata={STATE: text})
    write_bytes(path, MAGIC + hashlib.sha256(content).digest() + content)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a file holds; every part is checked when it is asked for.

    Arguments:
        path: The file.
        tensors: Lists of tensors by their names.
        state: Plain data.
    """

    path: Path
    tensors: Mapping[str, Sequence[Tensor]]
    state: Mapping[str, Any]

    def check_identity(self, now: Mapping[str, Any]) -> None:
        """Refuse a checkpoint of another training."""
        before = self.state.get("identity")
        if not isinstance(before, Mapping):
            raise _unreadable(self.path, "it does not say of what")
        now = json.loads(json.dumps(now))  # as the file has it: lists in place of tuples
        last = ["data", "batch_size", "validation"]  # these may follow from entries before them
        for key in sorted({*before, *now}, key=lambda key: (last.index(key) if key in last else -1, key)):
            if before.get(key) == now.get(key):
                continue
            if key == "data":
                raise InputError(f"'{self.path}' was trained on other simulations: remove it to start anew.")
            raise InputError(
                f"'{self.path}' was trained with {key} = {_short(before.get(key))}, not {_short(now.get(key))}: "
                "remove it to start anew."
            )

    def like(self, name: str, expected: Sequence[Tensor], *, finite: bool = True) -> list[Tensor]:
        """The tensors of this name, if they are finite and of the shapes and types of those they replace."""
        found = self.tensors.get(name)
        layout = [(tuple(tensor.shape), tensor.dtype) for tensor in expected]
        if found is None or [(tuple(tensor.shape), tensor.dtype) for tensor in found] != layout:
            raise _unreadable(self.path, f"its '{name}' does not fit")
        if finite and not all(bool(tensor.isfinite().all()) for tensor in found):
            raise _unreadable(self.path, f"its '{name}' is not finite")
        return list(found)

    def one(self, name: str, expected: Tensor) -> Tensor | None:
        """One tensor, if there is one of this name."""
        return self.like(name, [expected])[0] if self.tensors.get(name) else None

    def flags(self, name: str, count: int) -> list[bool]:
        """A list of ``count`` truth values."""
        found = self.state.get(name)
        if not isinstance(found, list) or len(found) != count or not all(isinstance(flag, bool) for flag in found):
            raise _unreadable(self.path, f"its '{name}' does not fit")
        return found

    def count(self, name: str) -> int:
        """A whole number."""
        found = self.state.get(name)
        if type(found) is not int or not 0 <= found < 2**53:
            raise _unreadable(self.path, f"its '{name}' is {found!r:.20}")
        return found

    def history(self) -> History:
        """The training history."""
        try:
            return History.from_json(self.state.get("history"))
        except InputError as error:
            raise _unreadable(self.path, str(error).rstrip(".")) from None


def read_checkpoint(path: Path, device: torch.device) -> Checkpoint:
    """What :func:`write_checkpoint` wrote; runs no code that came with the file."""
    content = read_bytes(path)
    if content[:4] == b"PK\x03\x04":
        raise _unreadable(path, "an earlier version of the library wrote it")
    start = len(MAGIC) + 32
    if content[: len(MAGIC)] != MAGIC:
        raise _unreadable(path, "it is none")
    checksum, content = content[len(MAGIC) : start], content[start:]
    if hashlib.sha256(content).digest() != checksum:
        raise _unreadable(path, "its checksum does not fit")
    try:
        flat = load_tensors(content)
        length = int.from_bytes(content[:8], "little")
        saved = json.loads(json.loads(content[8 : 8 + length])["__metadata__"][STATE])
        tensors: dict[str, list[Tensor]] = {name: [] for name in saved["names"]}
        for key in sorted(flat):
            tensors[key.rpartition("/")[0]].append(flat[key].to(device))
        return Checkpoint(path, tensors, dict(saved["state"]))
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError, RuntimeError) as error:
        raise _unreadable(path, f"{type(error).__name__}: {error!s:.80}") from None


def _unreadable(path: Path, reason: str) -> InputError:
    return InputError(f"The checkpoint '{path}' cannot be read ({reason}): remove it to start anew.")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."
