"""A posterior on disk: ``config.json`` and ``weights.safetensors``.

The files hold data only. Loading builds classes from an allow-list, verifies all content by checksum and every weight
by its place, refuses what is not a finite number, and never runs code that came with the files. Whatever is wrong with
them is an :class:`~propersbi.types.InputError` that names the file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from propersbi.recipes import Recipe
from propersbi.samplers import Sampler
from propersbi.storage.config import decode, encode
from propersbi.storage.files import read_json, write_bytes, write_json
from propersbi.training.history import History
from propersbi.types import InputError
from propersbi.typicality import TypicalityTest

__all__ = ["SavedPosterior", "config_checksum", "read_posterior", "write_posterior"]

FORMAT = 2
ENTRIES = {"sampler": dict, "parameter_names": list, "recipe": dict, "history": dict, "info": dict, "weights": str}
SAMPLER, TYPICALITY, DEFAULT_X = "sampler.", "typicality.", "default_x"
FOREIGN = (AttributeError, TypeError, ValueError, KeyError, IndexError, ArithmeticError, AssertionError, RuntimeError)


@dataclass(frozen=True, eq=False)
class SavedPosterior:
    """What is kept of a posterior; the prior is not.

    Arguments:
        sampler: The trained sampler, in the user's units.
        parameter_names: One for each parameter.
        recipe: The recipe it was trained by.
        history: What happened in training.
        info: Facts about the training, as JSON.
        default_x: The default observation, ``(1, *x_shape)``.
        typicality_test: What compares observations with the simulations.
        x_names: One for each number of the data, if they have names.
    """

    sampler: Sampler
    parameter_names: Sequence[str]
    recipe: Recipe | None = None
    history: History | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    default_x: Tensor | None = None
    typicality_test: TypicalityTest | None = None
    x_names: Sequence[str] | None = None


def write_posterior(folder: Path, saved: SavedPosterior) -> None:
    """Write a posterior; an older one in the folder is replaced as a whole."""
    tensors = {f"{SAMPLER}{name}": tensor for name, tensor in saved.sampler.state_dict().items()}
    if saved.default_x is not None:
        tensors[DEFAULT_X] = saved.default_x
    if saved.typicality_test is not None:
        tensors |= {f"{TYPICALITY}{name}": tensor for name, tensor in saved.typicality_test.to_tensors().items()}
    weights = save_tensors({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
    config = {
        "format": FORMAT,
        "sampler": encode(saved.sampler),
        "parameter_names": list(saved.parameter_names),
        "recipe": None if saved.recipe is None else saved.recipe.to_json(),
        "history": None if saved.history is None else saved.history.to_json(),
        "info": saved.info,
        "x_names": None if saved.x_names is None else list(saved.x_names),
        "weights": hashlib.sha256(weights).hexdigest(),
    }
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        write_bytes(temporary / "weights.safetensors", weights)
        write_json(temporary / "config.json", {**config, "checksum": config_checksum(config)})
        _replace_folder(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_posterior(folder: Path, own: Mapping[str, Any]) -> SavedPosterior:
    """Read what :func:`write_posterior` wrote, with objects of the user's own, by role, put in their places."""
    try:
        return _read(folder, own)
    except InputError:
        raise
    except (*FOREIGN, RecursionError) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise InputError(f"'{folder}' holds a damaged posterior ({reason}).") from None


def config_checksum(config: Mapping[str, Any]) -> str:
    """The checksum of all other entries of ``config.json``."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _read(folder: Path, own: Mapping[str, Any]) -> SavedPosterior:
    config = _read_config(folder)
    tensors = _read_weights(folder / "weights.safetensors", config["weights"])
    custom = {**own, **dict.fromkeys(("module", "sampler", "samplers", "generator"), own.get("network"))}
    given = any(own.get(name) is not None for name in ("network", "embedding"))
    # Built without memory: a file that asks for a gigantic network is refused, and does not fill the machine.
    with torch.device("cpu" if given else "meta"):
        sampler = decode(config["sampler"], custom, "sampler")
    if not isinstance(sampler, Sampler):
        raise InputError(f"'sampler' in '{folder / 'config.json'}' is not a sampler.")
    typicality = _under(TYPICALITY, tensors)
    default_x = tensors.pop(DEFAULT_X, None)
    _fill(sampler, {n.removeprefix(SAMPLER): t for n, t in tensors.items() if not n.startswith(TYPICALITY)}, folder)
    return SavedPosterior(
        sampler,
        config["parameter_names"],
        None if config["recipe"] is None else Recipe.from_json(config["recipe"]),
        None if config["history"] is None else History.from_json(config["history"]),
        config["info"],
        default_x,
        TypicalityTest.from_tensors(typicality, math.prod(sampler.x_shape)) if typicality else None,
        config.get("x_names"),
    )


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if path.exists() and not path.is_file():
        raise InputError(f"'{path}' cannot be read: it is not a regular file.")
    config = read_json(path)
    if not isinstance(config, dict) or "format" not in config:
        raise InputError(f"'{folder}' does not hold a posterior.")
    if config["format"] != FORMAT:
        raise InputError(f"'{folder}' has format {config['format']!s:.80}; this version reads format {FORMAT}.")
    if config.pop("checksum", None) != config_checksum(config):
        raise InputError(f"'{path}' was changed after it was saved: its checksum does not fit.")
    for key, kind in ENTRIES.items():
        if key not in config:
            raise InputError(f"'{path}' is incomplete: '{key}' is missing.")
        if not isinstance(config[key], kind) and not (config[key] is None and key in ("recipe", "history")):
            raise InputError(f"'{key}' in '{path}' is not what it should be: {config[key]!r:.40}.")
    return config


def _read_weights(path: Path, checksum: str) -> dict[str, Tensor]:
    if path.exists() and not path.is_file():
        raise InputError(f"'{path}' cannot be read: it is not a regular file.")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error.strerror}.") from None
    if hashlib.sha256(content).hexdigest() != checksum:
        raise InputError(f"'{path}' was changed after it was saved: its checksum does not fit.")
    try:
        return dict(load_tensors(content))
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"'{path}' is not a file of weights: {error}.") from None


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _fill(sampler: nn.Module, tensors: dict[str, Tensor], folder: Path) -> None:
    expected = {name: (tuple(t.shape), t.dtype) for name, t in sampler.state_dict().items()}
    found = {name: (tuple(t.shape), t.dtype) for name, t in tensors.items()}
    if expected != found:
        wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise InputError(f"The weights in '{folder}' do not fit its network: '{wrong[0]}' differs.")
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise InputError(f"The weights in '{folder}' are not all finite: '{name}' holds NaN or infinity.")
    sampler.load_state_dict(tensors, assign=True)


def _replace_folder(new: Path, place: Path) -> None:
    """Put a folder in the place of another; the old one stands beside until then, so that one is always whole."""
    old = place.with_name(f".{place.name}.{os.getpid()}.old")
    if place.exists():
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)
