"""The posterior: draws of the parameters for any observation, saved as JSON and safetensors.

The file holds data only. Loading builds classes from an allow-list, verifies all content by checksum and every weight
by its place, and never runs code that came with the file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from propersbi.observations import observations, one_observation
from propersbi.recipes import Recipe
from propersbi.samplers import Box, Mixture, Sampler, Standardized
from propersbi.samplers.base import log_density, refinement_steps_of, sample_with
from propersbi.storage.config import decode, encode
from propersbi.storage.files import read_json, write_bytes, write_json
from propersbi.storage.progress import progress_bar
from propersbi.storage.randomness import seeded
from propersbi.training.history import History
from propersbi.types import InputError

__all__ = ["Posterior", "checked_names"]

FORMAT = 2
MAX_DRAWS_AT_ONCE = 2000  # a few megabytes for each hidden layer, which stay in the cache
MAX_NUMBERS_AT_ONCE = 200_000  # of theta
LONG_WORK = 500_000  # passes through the network above which a progress bar is shown: a few seconds


class Posterior:
    """An amortised posterior, with the method names of the sbi package.

    Arguments:
        sampler: The trained sampler, in the user's units.
        parameter_names: One for each parameter (of the flattened event).
        prior: The prior, if it is at hand; it is not saved.
        recipe: The recipe it was trained by.
        history: What happened in training.
        info: Facts about the training, as JSON.
    """

    def __init__(
        self,
        sampler: Sampler,
        *,
        parameter_names: Sequence[str] | None = None,
        prior: Any = None,
        recipe: Recipe | None = None,
        history: History | None = None,
        info: Mapping[str, Any] | None = None,
    ) -> None:
        self.sampler = sampler.eval()
        self.prior, self.recipe, self.history = prior, recipe, history
        self.info = dict(info or {})
        self.theta_shape, self.x_shape = tuple(sampler.theta_shape), tuple(sampler.x_shape)
        self.parameter_names = checked_names(parameter_names, self.theta_shape)
        self.default_x: Tensor | None = None

    def __repr__(self) -> str:
        sampler = self.sampler.sampler if isinstance(self.sampler, Standardized) else self.sampler
        return f"Posterior(theta {self.theta_shape} given x {self.x_shape}, {type(sampler).__name__})"

    @property
    def box(self) -> Box:
        """The support of the prior, as far as it is known; no draw leaves it."""
        sampler = self.sampler.samplers[0] if isinstance(self.sampler, Mixture) else self.sampler
        return sampler.box if isinstance(sampler, Standardized) else Box()

    def sample(
        self,
        sample_shape: Sequence[int] = (),
        x: Any = None,
        show_progress_bars: bool = True,
        *,
        refinement_steps: int | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Draws for one observation, ``(*sample_shape, *theta_shape)``; without ``x`` for the default one.

        A posterior that was trained with refinement takes ``refinement_steps`` steps, if given, in place of its own.
        """
        observation = self._observation(x)
        draws = self._draw(math.prod(sample_shape), observation, show_progress_bars, refinement_steps, seed)
        return draws[:, 0].reshape(*sample_shape, *self.theta_shape)

    def sample_batched(
        self,
        sample_shape: Sequence[int],
        x: Any,
        show_progress_bars: bool = True,
        *,
        refinement_steps: int | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Draws for each of ``N`` observations, ``(*sample_shape, N, *theta_shape)``."""
        rows = observations(x, self.x_shape)
        draws = self._draw(math.prod(sample_shape), rows, show_progress_bars, refinement_steps, seed)
        return draws.reshape(*sample_shape, len(rows), *self.theta_shape)

    def _draw(self, m: int, x: Tensor, progress: bool, refinement_steps: int | None, seed: int | None) -> Tensor:
        """``(m, N, *theta)``, in pieces that fit in memory, each observation embedded once for a piece of its draws."""
        if m < 1:
            raise InputError(f"The number of draws must be positive, got {m}.")
        most = max(1, min(MAX_DRAWS_AT_ONCE, MAX_NUMBERS_AT_ONCE // math.prod(self.theta_shape)))
        rows = max(1, min(len(x), most // min(m, most)))
        piece = min(m, most)
        draws = torch.empty(m, len(x), *self.theta_shape, device=self.device)
        passes = m * len(x) * (refinement_steps or refinement_steps_of(self.sampler))
        bar = progress_bar(m * len(x), "sampling", "draw", show=progress and passes > LONG_WORK)
        with torch.inference_mode(), seeded(seed), bar:
            for i in range(0, len(x), rows):
                part = x[i : i + rows].to(self.device)
                for k in range(0, m, piece):
                    out = sample_with(self.sampler, min(piece, m - k), part, refinement_steps)
                    draws[k : k + piece, i : i + rows] = out
                    bar.update(out.shape[0] * out.shape[1])
        return draws

    def log_prob(self, theta: Any, x: Any = None) -> Tensor:
        """The logarithm of the density at ``theta (k, *theta_shape)``, for posteriors that have one: ``(k,)``."""
        observation = self._observation(x)
        values = torch.as_tensor(theta, device=self.device)
        if tuple(values.shape[1:]) != self.theta_shape:
            raise InputError(f"'theta' must have shape (k, {str(self.theta_shape)[1:]}, got {tuple(values.shape)}.")
        with torch.inference_mode():
            return log_density(self.sampler, values.unsqueeze(1), observation.to(self.device))[:, 0]

    def summary(
        self, x: Any = None, *, num_samples: int = 10_000, seed: int | None = None
    ) -> dict[str, dict[str, float]]:
        """Mean, standard deviation, median and central 90 % interval of each parameter."""
        samples = self.sample((num_samples,), x, show_progress_bars=False, seed=seed).flatten(1).double()
        low, median, high = torch.quantile(samples, torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64), dim=0)
        columns = {"mean": samples.mean(0), "sd": samples.std(0), "median": median, "5%": low, "95%": high}
        return {
            name: {key: column[i].item() for key, column in columns.items()}
            for i, name in enumerate(self.parameter_names)
        }

    def set_default_x(self, x: Any) -> Posterior:
        """Remember an observation; returns the posterior itself."""
        self.default_x = torch.as_tensor(one_observation(x, self.x_shape)).unsqueeze(0)
        return self

    def _observation(self, x: Any) -> Tensor:
        """One observation ``(1, *x_shape)``: the given or the default one."""
        if x is not None:
            return torch.as_tensor(one_observation(x, self.x_shape)).unsqueeze(0)
        if self.default_x is None:
            raise InputError("There is no observation: give 'x' or call 'set_default_x'.")
        return self.default_x

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        tensors = [*self.sampler.parameters(), *self.sampler.buffers()]
        return tensors[0].device if tensors else torch.device("cpu")

    _device = device  # the name under which sbi's tools look for it

    def to(self, device: str | torch.device) -> Posterior:
        """Move to a device; returns the posterior itself."""
        self.sampler.to(device)
        return self

    def save(self, folder: str | Path) -> Path:
        """Write ``config.json`` and ``weights.safetensors``; an older posterior there is replaced as a whole.

        The default observation, the recipe and the training history are kept, the prior is not.
        """
        folder = Path(folder)
        tensors = {f"sampler.{name}": tensor for name, tensor in self.sampler.state_dict().items()}
        if self.default_x is not None:
            tensors["default_x"] = self.default_x
        weights = save_tensors({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
        config = {
            "format": FORMAT,
            "sampler": encode(self.sampler),
            "parameter_names": list(self.parameter_names),
            "recipe": None if self.recipe is None else self.recipe.to_json(),
            "history": None if self.history is None else self.history.to_json(),
            "info": self.info,
            "weights": hashlib.sha256(weights).hexdigest(),
        }
        temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            write_bytes(temporary / "weights.safetensors", weights)
            write_json(temporary / "config.json", {**config, "checksum": _checksum(config)})
            _replace_folder(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return folder

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        network: nn.Module | None = None,
        embedding: nn.Module | None = None,
        prior: Any = None,
    ) -> Posterior:
        """Read a saved posterior.

        Arguments:
            folder: Where it was saved.
            network: The network of your own it was trained with, if any: of the same architecture; its weights are in
                the file.
            embedding: Likewise an embedding of your own.
            prior: The prior, if it is wanted on the posterior.
        """
        folder = Path(folder)
        config = read_json(folder / "config.json")
        _check_config(config, folder)
        tensors = _read_weights(folder / "weights.safetensors", config["weights"])
        custom = {"embedding": embedding, **dict.fromkeys(("module", "sampler", "samplers", "generator"), network)}
        own = network is not None or embedding is not None
        # Built without memory: a file that asks for a gigantic network is refused, and does not fill the machine.
        with torch.device("cpu" if own else "meta"):
            sampler = decode(config["sampler"], custom, "sampler")
        if not isinstance(sampler, Sampler):
            raise InputError(f"'sampler' in '{folder / 'config.json'}' is not a sampler.")
        _fill(sampler, {n.removeprefix("sampler."): t for n, t in tensors.items() if n != "default_x"}, folder)
        posterior = cls(
            sampler,
            parameter_names=config["parameter_names"],
            prior=prior,
            recipe=None if config["recipe"] is None else Recipe.from_json(config["recipe"]),
            history=None if config["history"] is None else History.from_json(config["history"]),
            info=config["info"],
        )
        return posterior.set_default_x(tensors["default_x"]) if "default_x" in tensors else posterior


def checked_names(names: Sequence[str] | None, shape: Sequence[int]) -> tuple[str, ...]:
    """One name for each parameter: the given ones, or numbered ones."""
    size = math.prod(shape)
    if names is None:
        return tuple(f"theta_{i + 1}" for i in range(size))
    if len(names) != size:
        raise InputError(f"There are {len(names)} parameter names for {size} parameters.")
    return tuple(str(name) for name in names)


def _checksum(config: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def _check_config(config: Any, folder: Path) -> None:
    if not isinstance(config, dict) or "format" not in config:
        raise InputError(f"'{folder}' does not hold a posterior.")
    if config["format"] != FORMAT:
        raise InputError(f"'{folder}' has format {config['format']!s:.80}; this version reads format {FORMAT}.")
    if config.pop("checksum", None) != _checksum(config):
        raise InputError(f"'{folder / 'config.json'}' was changed after it was saved: its checksum does not fit.")
    for key in ("sampler", "parameter_names", "recipe", "history", "info", "weights"):
        if key not in config:
            raise InputError(f"'{folder / 'config.json'}' is incomplete: '{key}' is missing.")


def _read_weights(path: Path, checksum: str) -> dict[str, Tensor]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"'{path}' cannot be read: {error.strerror}.") from None
    if hashlib.sha256(content).hexdigest() != checksum:
        raise InputError(f"'{path}' was changed after it was saved: its checksum does not fit.")
    try:
        return load_tensors(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"'{path}' is not a file of weights: {error}.") from None


def _fill(sampler: nn.Module, tensors: dict[str, Tensor], folder: Path) -> None:
    expected = {name: (tuple(t.shape), t.dtype) for name, t in sampler.state_dict().items()}
    found = {name: (tuple(t.shape), t.dtype) for name, t in tensors.items()}
    if expected != found:
        wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise InputError(f"The weights in '{folder}' do not fit its network: '{wrong[0]}' differs.")
    sampler.load_state_dict(tensors, assign=True)


def _replace_folder(new: Path, place: Path) -> None:
    """Put a folder in the place of another; the old one stands beside until then, so that one is always whole."""
    old = place.with_name(f".{place.name}.{os.getpid()}.old")
    if place.exists():
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)
