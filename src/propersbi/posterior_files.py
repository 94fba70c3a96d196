"""A posterior on disk: ``config.json`` and ``weights.safetensors``.

The files hold data only. Loading builds classes from an allow-list, verifies all content by checksum and every weight
by its place, refuses what is not a finite number, and never runs code that came with the files. Whatever is wrong with
them is an :class:`~propersbi.types.InputError` that names the file.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from propersbi.posterior_formats import FORMAT, check_format, migrate
from propersbi.recipes import Recipe
from propersbi.samplers import Sampler
from propersbi.storage.config import decode, encode
from propersbi.storage.files import checksum_of_json, read_bytes, read_json, sweep, write_bytes, write_json
from propersbi.storage.locks import Lock
from propersbi.storage.schema import read_as
from propersbi.storage.torch_defaults import torch_defaults
from propersbi.training.history import History
from propersbi.types import InputError
from propersbi.typicality import TypicalityTest, statistic_names

__all__ = ["SavedPosterior", "read_posterior", "write_posterior"]

WEIGHTS = "weights.safetensors"
LARGEST_WEIGHT = 1e15  # of a network: products of such weights are not finite
PATIENCE = 120.0  # seconds to wait for another process that saves
MAX_TRIES = 20  # of reading while another process saves
SAMPLER, TYPICALITY, DEFAULT_X = "sampler.", "typicality.", "default_x"
FOREIGN = (AttributeError, TypeError, ValueError, KeyError, IndexError, ArithmeticError, AssertionError, RuntimeError)


@dataclass(frozen=True)
class _Config:
    """What ``config.json`` holds, besides its checksum."""

    format: int
    sampler: dict[str, Any]
    parameter_names: list[str]
    recipe: dict[str, Any] | None
    history: dict[str, Any] | None
    info: dict[str, Any]
    weights: str
    x_names: list[str] | None = None


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
    """Write a posterior; an older one in the folder is replaced in one step."""
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
    with Lock(folder / ".lock", f"The posterior '{folder}'", wait=PATIENCE):
        _commit(folder, config, weights)


def _commit(folder: Path, config: Mapping[str, Any], weights: bytes) -> None:
    """Replace a posterior in one step: by its ``config.json``, which names its weights by their checksum.

    The new weights have a name of their own until then, so that a reader finds the old posterior or the new one,
    whenever the writer is killed.
    """
    sweep(folder)
    new = _new_weights(folder, config["weights"])
    try:
        write_bytes(new, weights)
        write_json(folder / "config.json", {**config, "checksum": checksum_of_json(config)})
    finally:
        for other in folder.glob("weights-*.safetensors"):  # of this writer, if it fails, and of one that was killed
            if not _in_use(folder, other):
                other.unlink(missing_ok=True)
    new.replace(folder / WEIGHTS)


def _new_weights(folder: Path, checksum: str) -> Path:
    return folder / f"weights-{checksum[:16]}.safetensors"


def _in_use(folder: Path, weights: Path) -> bool:
    """Whether the present ``config.json`` means these weights."""
    try:
        return _new_weights(folder, _read_config(folder)["weights"]) == weights
    except InputError:
        return False


@torch_defaults()
def read_posterior(folder: Path, own: Mapping[str, Any]) -> SavedPosterior:
    """Read what :func:`write_posterior` wrote, with objects of the user's own, by role, put in their places."""
    try:
        config, tensors = migrate(*_read_files(folder))
        return _build(folder, config, tensors, own)
    except InputError:
        raise
    except (*FOREIGN, RecursionError) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise InputError(f"'{folder}' holds a damaged posterior ({reason}).") from None


def _read_files(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Config and weights that belong together, also while another process replaces them."""
    for _ in range(MAX_TRIES):
        config = _read_config(folder)
        new = _new_weights(folder, config["weights"])
        try:
            return config, _read_weights(new if new.exists() else folder / WEIGHTS, config["weights"])
        except InputError:
            if _read_config(folder) == config and not new.exists():
                break
    return config, _read_weights(folder / WEIGHTS, config["weights"])


def _build(
    folder: Path, config: Mapping[str, Any], tensors: dict[str, Tensor], own: Mapping[str, Any]
) -> SavedPosterior:
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
        TypicalityTest.from_tensors(typicality, len(statistic_names(sampler) or ()) or math.prod(sampler.x_shape))
        if typicality
        else None,
        config.get("x_names"),
    )


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    config = read_json(path)
    if not isinstance(config, dict) or "format" not in config:
        raise InputError(f"'{folder}' does not hold a posterior.")
    check_format(config["format"], str(folder))
    if config.pop("checksum", None) != checksum_of_json(config):
        raise InputError(f"'{path}' was changed after it was saved: its checksum does not fit.")
    if config["format"] == FORMAT:  # what earlier versions wrote is brought to this format first
        read_as(_Config, config, str(path))
    return config


def _read_weights(path: Path, checksum: str) -> dict[str, Tensor]:
    content = read_bytes(path)
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
    if not all((weight.abs() < LARGEST_WEIGHT).all() for weight in sampler.parameters()):
        raise InputError(f"The weights in '{folder}' are damaged: some are too large to have been trained.")
