"""The posterior: draws of the parameters for any observation, saved as JSON and safetensors.

The file holds data only. Loading builds classes of this library from an allow-list, checks every byte against its
checksum and every weight against its place, and never runs code that came with the file.
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

from propersbi.storage.config import decode, encode
from propersbi.storage.files import read_json, write_bytes, write_json
from propersbi.storage.progress import progress_bar
from propersbi.storage.randomness import seeded
from propersbi.samplers.bounds import Box, Standardize
from propersbi.types import InputError

__all__ = ["Posterior", "checked_names"]

FORMAT = 1
ROWS = 2000  # draws computed at once: a few megabytes for each hidden layer, which stay in the cache
NUMBERS = 200_000  # of them in so many numbers of theta at once
LONG = 500_000  # passes through the network from which on a progress bar is shown: a few seconds


class Posterior:
    """An amortised posterior, with the method names of the sbi package.

    Arguments:
        sampler: The trained network, in standardised units.
        theta_units: Between the user's parameters and the network's.
        x_units: Likewise for data.
        support: Where the prior lives; no draw leaves it.
        parameter_names: One for each parameter (of the flattened event).
        prior: The prior, if it is at hand; it is not saved.
        info: Anything about how it came to be, as JSON.
        history: The course of training, if it is at hand; it is not saved with the posterior.
    """

    def __init__(
        self,
        sampler: nn.Module,
        theta_units: Standardize,
        x_units: Standardize,
        *,
        support: Box | None = None,
        parameter_names: Sequence[str] | None = None,
        prior: Any = None,
        info: Mapping[str, Any] | None = None,
        history: Any = None,
    ) -> None:
        self.sampler, self.theta_units, self.x_units = sampler.eval(), theta_units, x_units
        self.support = support or Box()
        self.prior, self.history = prior, history
        self.info = dict(info or {})
        self.theta_shape, self.x_shape = theta_units.shape, x_units.shape
        self.parameter_names = checked_names(parameter_names, self.theta_shape)
        self.default_x: Tensor | None = None
        if not self.support.fits(self.theta_shape):
            raise InputError(f"The bounds of {self.support} do not fit parameters of shape {self.theta_shape}.")

    def __repr__(self) -> str:
        return f"Posterior(theta {self.theta_shape} given x {self.x_shape}, {type(self.sampler).__name__})"

    def sample(
        self,
        sample_shape: Sequence[int] = (),
        x: Any = None,
        show_progress_bars: bool = True,
        *,
        steps: int | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Draws for one observation, ``(*sample_shape, *theta_shape)``; without ``x`` for the default one.

        A posterior that was trained with refinement takes ``steps`` steps, if they are given, in place of its own.
        """
        if x is None and self.default_x is None:
            raise InputError("There is no observation: give 'x' or call 'set_default_x'.")
        observation = self.default_x if x is None else self._observations(x, many=False)
        assert observation is not None
        draws = self._draw(math.prod(sample_shape), observation, show_progress_bars, steps, seed)
        return draws[:, 0].reshape(*sample_shape, *self.theta_shape)

    def sample_batched(
        self,
        sample_shape: Sequence[int],
        x: Any,
        show_progress_bars: bool = True,
        *,
        steps: int | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Draws for each of ``N`` observations, ``(*sample_shape, N, *theta_shape)``."""
        observations = self._observations(x, many=True)
        draws = self._draw(math.prod(sample_shape), observations, show_progress_bars, steps, seed)
        return draws.reshape(*sample_shape, len(observations), *self.theta_shape)

    def _draw(self, m: int, x: Tensor, progress: bool, steps: int | None, seed: int | None) -> Tensor:
        """``(m, N, *theta)``, in pieces that fit in memory, each observation embedded once for a piece of its draws."""
        if m < 1:
            raise InputError(f"The number of draws must be positive, got {m}.")
        if steps is not None and not hasattr(self.sampler, "steps"):
            raise InputError(f"This posterior draws in one pass: it cannot take steps = {steps}.")
        options = {} if steps is None else {"steps": steps}
        most = max(1, min(ROWS, NUMBERS // math.prod(self.theta_shape)))
        rows = max(1, min(len(x), most // min(m, most)))
        piece = min(m, most)
        draws = torch.empty(m, len(x), *self.theta_shape, device=self.device)
        taken: Any = getattr(self.sampler, "steps", 1) if steps is None else steps
        bar = progress_bar(m * len(x), "sampling", "draw", show=progress and m * len(x) * taken > LONG)
        with torch.inference_mode(), seeded(seed), bar:
            for i in range(0, len(x), rows):
                units = self.x_units(x[i : i + rows].to(self.device))
                for k in range(0, m, piece):
                    out = self.sampler.sample(min(piece, m - k), units, **options)  # type: ignore[operator]
                    draws[k : k + piece, i : i + rows] = self.support(self.theta_units.inverse(out))
                    bar.update(out.shape[0] * out.shape[1])
        return draws

    def log_prob(self, theta: Any, x: Any = None) -> Tensor:
        """The logarithm of the density at ``theta (k, *theta_shape)``, for posteriors that have one: ``(k,)``."""
        if not hasattr(self.sampler, "log_prob"):
            raise InputError("This posterior can only be sampled: train a flow with MaximumLikelihood for a density.")
        if x is None and self.default_x is None:
            raise InputError("There is no observation: give 'x' or call 'set_default_x'.")
        observation = self.default_x if x is None else self._observations(x, many=False)
        assert observation is not None
        values = torch.as_tensor(theta, device=self.device)
        if tuple(values.shape[1:]) != self.theta_shape:
            raise InputError(f"'theta' must have shape (k, {str(self.theta_shape)[1:]}, got {tuple(values.shape)}.")
        stretch = self.theta_units.scale.expand(self.theta_shape).log().sum()
        with torch.inference_mode():
            units = self.x_units(observation.to(self.device))
            density = self.sampler.log_prob(self.theta_units(values).unsqueeze(1), units)[:, 0]  # type: ignore[operator]
        return density - stretch.float()

    def summary(self, x: Any = None, *, draws: int = 10_000, seed: int | None = None) -> dict[str, dict[str, float]]:
        """Mean, standard deviation, median and central 90 % interval of each parameter."""
        samples = self.sample((draws,), x, show_progress_bars=False, seed=seed).flatten(1).double()
        low, median, high = torch.quantile(samples, torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64), dim=0)
        columns = {"mean": samples.mean(0), "sd": samples.std(0), "median": median, "5%": low, "95%": high}
        return {
            name: {key: column[i].item() for key, column in columns.items()}
            for i, name in enumerate(self.parameter_names)
        }

    def set_default_x(self, x: Any) -> Posterior:
        """Remember an observation; returns the posterior itself."""
        self.default_x = self._observations(x, many=False)
        return self

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.theta_units.center.device

    _device = device  # the name under which sbi's tools look for it

    def to(self, device: str | torch.device) -> Posterior:
        """Move to a device; returns the posterior itself."""
        for module in (self.sampler, self.theta_units, self.x_units):
            module.to(device)
        return self

    def _observations(self, x: Any, *, many: bool) -> Tensor:
        """``x`` as rows ``(N, *x_shape)`` of finite numbers; one observation may come with or without its row axis."""
        try:
            values = torch.as_tensor(x).detach()
        except (TypeError, ValueError, RuntimeError):
            raise InputError(f"'x' must be an array of numbers, got {type(x).__name__}.") from None
        values = values if values.is_floating_point() else values.float()
        shape = tuple(values.shape)
        if not many and shape in (self.x_shape, self.x_shape[1:] if self.x_shape == (1,) else self.x_shape):
            values = values.reshape(1, *self.x_shape)
        elif many and self.x_shape == (1,) and len(shape) == 1:
            values = values.reshape(-1, 1)
        if tuple(values.shape[1:]) != self.x_shape or (not many and len(values) != 1):
            expected = f"(N, {str(self.x_shape)[1:]}" if many else str(self.x_shape)
            raise InputError(f"'x' must have shape {expected}, got {shape}.")
        if not len(values):
            raise InputError("There are no observations: 'x' is empty.")
        bad = ~torch.isfinite(values)
        if bad.any():
            at = tuple(bad.nonzero()[0].tolist())
            raise InputError(f"'x' must be finite, got {values[at].item()} at {at if many else at[1:]}.")
        return values

    def save(self, folder: str | Path) -> Path:
        """Write ``config.json`` and ``weights.safetensors``; an older posterior there is replaced as a whole.

        The default observation is kept, the prior is not.
        """
        folder = Path(folder)
        parts = {"sampler": self.sampler, "theta_units": self.theta_units, "x_units": self.x_units}
        tensors = {f"{key}.{name}": t for key, part in parts.items() for name, t in part.state_dict().items()}
        if self.default_x is not None:
            tensors["default_x"] = self.default_x
        weights = save_tensors({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
        config = {
            "format": FORMAT,
            **{key: encode(part) for key, part in parts.items()},
            "support": encode(self.support),
            "parameter_names": list(self.parameter_names),
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
    def load(cls, folder: str | Path, *, embedding: nn.Module | None = None, prior: Any = None) -> Posterior:
        """Read a saved posterior.

        Arguments:
            folder: Where it was saved.
            embedding: The own embedding network it was trained with, if any: of the same architecture; its weights
                are in the file.
            prior: The prior, if it is wanted on the posterior.
        """
        folder = Path(folder)
        config = read_json(folder / "config.json")
        _check_config(config, folder)
        tensors = _read_weights(folder / "weights.safetensors", config["weights"])
        parts: dict[str, Any] = {}
        for key in ("sampler", "theta_units", "x_units"):
            # Built without memory: a file that asks for a gigantic network is refused, and does not fill the machine.
            with torch.device("meta" if embedding is None else "cpu"):
                part = decode(config[key], {"embedding": embedding})
            if not isinstance(part, nn.Module):
                raise InputError(f"'{key}' in '{folder / 'config.json'}' is not a network.")
            _fill(part, {n.removeprefix(f"{key}."): t for n, t in tensors.items() if n.startswith(f"{key}.")}, folder)
            parts[key] = part
        support = decode(config["support"])
        if not isinstance(support, Box):
            raise InputError(f"'support' in '{folder / 'config.json'}' is not a box.")
        posterior = cls(
            **parts,
            support=support,
            parameter_names=config["parameter_names"],
            prior=prior,
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
        raise InputError(f"'{folder}' has format {config['format']}; this version reads format {FORMAT}.")
    if config.pop("checksum", None) != _checksum(config):
        raise InputError(f"'{folder / 'config.json'}' was changed after it was saved: its checksum does not fit.")
    for key in ("sampler", "theta_units", "x_units", "support", "parameter_names", "info", "weights"):
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


def _fill(part: nn.Module, tensors: dict[str, Tensor], folder: Path) -> None:
    expected = {name: (tuple(t.shape), t.dtype) for name, t in part.state_dict().items()}
    found = {name: (tuple(t.shape), t.dtype) for name, t in tensors.items()}
    if expected != found:
        wrong = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise InputError(f"The weights in '{folder}' do not fit its network: '{wrong[0]}' differs.")
    part.load_state_dict(tensors, assign=True)


def _replace_folder(new: Path, place: Path) -> None:
    """Put a folder in the place of another; the old one stands beside until then, so that one is always whole."""
    old = place.with_name(f".{place.name}.{os.getpid()}.old")
    if place.exists():
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)
