"""The posterior: draws of the parameters for any observation, and a warning where it is unlike the simulations."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from propersbi.interchange import Groups, arviz_of, dataframe_of
from propersbi.layouts import Layout
from propersbi.observations import as_numbers, observations, one_observation, sample_sizes
from propersbi.posterior_files import SavedPosterior, read_posterior, write_posterior
from propersbi.recipes import Recipe
from propersbi.samplers import Box, Mixture, Sampler, Standardized
from propersbi.samplers.base import log_density, refinement_steps_of, sample_with
from propersbi.storage.checks import check_whole, checked_names, to_path
from propersbi.storage.progress import progress_bar
from propersbi.storage.randomness import seeded
from propersbi.storage.tables import Summary, html_table
from propersbi.storage.torch_defaults import torch_defaults
from propersbi.summaries import add_posterior, densest, summarise
from propersbi.training.history import History
from propersbi.types import InputError
from propersbi.typicality import UNLIKE, Typicality, TypicalityTest, UnlikeSimulations, deviations, p_values_of

__all__ = ["Posterior"]

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
        typicality_test: What compares observations with the simulations, see :mod:`propersbi.typicality`.
        x_names: One for each number of the data, if they have names.
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
        typicality_test: TypicalityTest | None = None,
        x_names: Sequence[str] | None = None,
    ) -> None:
        if not isinstance(sampler, Sampler):
            raise InputError(f"'sampler' must be a sampler, got {type(sampler).__name__}.")
        if info is not None and not isinstance(info, Mapping):
            raise InputError(f"'info' must be a dict, got {type(info).__name__}.")
        self.sampler = sampler.eval()
        self.prior, self.recipe, self.history = prior, recipe, history
        self.info = dict(info or {})
        self.typicality_test = typicality_test
        self.theta_shape, self.x_shape = tuple(sampler.theta_shape), tuple(sampler.x_shape)
        self.parameter_names = checked_names(parameter_names, self.theta_shape)
        self.x_names = None if x_names is None else checked_names(x_names, self.x_shape, "data")
        self.default_x: Tensor | None = None

    def __repr__(self) -> str:
        return f"Posterior(theta {self.theta_shape} given x {self.x_shape}, {type(self._network).__name__})"

    def _repr_html_(self) -> str:
        names = ", ".join(self.parameter_names[:8]) + (", …" if len(self.parameter_names) > 8 else "")
        rows = [["parameters", f"{self.theta_shape}: {names}"], ["data", f"{self.x_shape}"]]
        rows += [["sampler", type(self._network).__name__]]
        if self.history is not None and self.history.stopped is not None:
            ended = f"{self.history.steps} steps; it ended because {self.history.stopped.sentence}"
            rows.append(["training", ended])
        return html_table("Posterior", ["", ""], rows)

    @property
    def _network(self) -> Sampler:
        return self.sampler.sampler if isinstance(self.sampler, Standardized) else self.sampler

    @property
    def box(self) -> Box:
        """The support of the prior, as far as it is known; no draw leaves it."""
        sampler = self.sampler.samplers[0] if isinstance(self.sampler, Mixture) else self.sampler
        return sampler.box if isinstance(sampler, Standardized) else Box()

    @property
    def layout(self) -> Layout | None:
        """The parts of structured data; ``None`` for one vector."""
        return None if self.recipe is None else self.recipe.layout

    @property
    def takes_missing(self) -> bool:
        """Whether entries of an observation may be missing."""
        return self.recipe is not None and self.recipe.takes_missing

    @torch_defaults()
    def sample(
        self,
        sample_shape: int | Sequence[int] = (),
        x: Any = None,
        show_progress_bars: bool = True,
        *,
        refinement_steps: int | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Draws for one observation, ``(*sample_shape, *theta_shape)``; without ``x`` for the default one.

        A number of draws is the same as a shape of that length. A posterior that was trained with refinement takes
        ``refinement_steps`` steps, if given, in place of its own. An observation unlike the simulations is warned of.
        """
        observation, shape = self._observation(x), sample_sizes(sample_shape, 1, self.theta_shape)
        self._warn_unlike(observation)
        draws = self._draw(math.prod(shape), observation, show_progress_bars, refinement_steps, seed)
        return draws[:, 0].reshape(*shape, *self.theta_shape)

    @torch_defaults()
    def sample_batched(
        self,
        sample_shape: int | Sequence[int],
        x: Any,
        show_progress_bars: bool = True,
        *,
        refinement_steps: int | None = None,
        seed: int | None = None,
    ) -> Tensor:
        """Draws for each of ``N`` observations, ``(*sample_shape, N, *theta_shape)``."""
        rows = observations(x, self.x_shape, layout=self.layout, missing=self.takes_missing)
        shape = sample_sizes(sample_shape, len(rows), self.theta_shape)
        self._warn_unlike(rows)
        draws = self._draw(math.prod(shape), rows, show_progress_bars, refinement_steps, seed)
        return draws.reshape(*shape, len(rows), *self.theta_shape)

    def _draw(self, m: int, x: Tensor, progress: bool, refinement_steps: int | None, seed: int | None) -> Tensor:
        """``(m, N, *theta)``, in pieces that fit in memory, each observation embedded once for a piece of its draws."""
        most = max(1, min(MAX_DRAWS_AT_ONCE, MAX_NUMBERS_AT_ONCE // math.prod(self.theta_shape)))
        rows = max(1, min(len(x), most // min(m, most)))
        piece = min(m, most)
        draws: Tensor | None = None
        if refinement_steps is not None:
            refinement_steps = check_whole("refinement_steps", refinement_steps, 1)
        passes = m * len(x) * (refinement_steps or refinement_steps_of(self.sampler))
        bar = progress_bar(m * len(x), "sampling", "draw", show=progress is True and passes > LONG_WORK)
        with torch.inference_mode(), seeded(seed), bar:
            for i in range(0, len(x), rows):
                part = x[i : i + rows].to(self.device)
                for k in range(0, m, piece):
                    out = sample_with(self.sampler, min(piece, m - k), part, refinement_steps)
                    draws = self._empty(m, len(x), out) if draws is None else draws
                    draws[k : k + piece, i : i + rows] = out
                    bar.update(out.shape[0] * out.shape[1])
        assert draws is not None
        return draws

    def _empty(self, m: int, n: int, like: Tensor) -> Tensor:
        """Room for all draws, of the type of some; users may differentiate functions of it."""
        with torch.inference_mode(False):
            return torch.empty(m, n, *self.theta_shape, dtype=like.dtype, device=like.device)

    @torch_defaults()
    def log_prob(self, theta: Any, x: Any = None) -> Tensor:
        """The logarithm of the density at ``theta (k, *theta_shape)``, for posteriors that have one: ``(k,)``."""
        observation = self._observation(x)
        values = torch.as_tensor(as_numbers(theta, "theta"), device=self.device)
        if tuple(values.shape[1:]) != self.theta_shape:
            raise InputError(f"'theta' must have shape (k, {str(self.theta_shape)[1:]}, got {tuple(values.shape)}.")
        with torch.inference_mode():
            return log_density(self.sampler, values.unsqueeze(1), observation.to(self.device))[:, 0]

    @torch_defaults()
    def typicality(self, x: Any = None) -> Typicality:
        """How like the simulations an observation is: a p-value, and the numbers that deviate most.

        The probability that a simulation is at least as extreme, in the data or in the network's own features of them:
        see :mod:`propersbi.typicality`. Below 0.01, :meth:`sample` warns.
        """
        observation = self._observation(x)
        if self.typicality_test is None:
            raise InputError("This posterior keeps no statistics of its simulations: there were too few, or it is old.")
        deviant = deviations(self.typicality_test, self.sampler, observation.to(self.device), self.x_names)
        return Typicality(p_values_of(self.typicality_test, self.sampler, observation.to(self.device)).item(), deviant)

    def _warn_unlike(self, rows: Tensor) -> None:
        """Warn of an observation unlike the simulations, and of more such rows than chance explains."""
        if self.typicality_test is None:
            return
        p, n = p_values_of(self.typicality_test, self.sampler, rows.to(self.device)), len(rows)
        count, lowest = int((p < UNLIKE).sum()), int(p.argmin())
        by_chance = UNLIKE * n + 3 * math.sqrt(UNLIKE * n) + 1
        if n == 1 and count:
            message = f"{self.typicality(rows[0]).sentence} The posterior may be wrong there."
        elif n > 1 and (p[lowest] < UNLIKE / n or count > by_chance):
            first = self.typicality(rows[lowest]).sentence.removeprefix("The observation is unlike the simulations ")
            message = f"{count} of {n} observations are unlike the simulations, most of all row {lowest} {first}"
        else:
            return
        warnings.warn(message, UnlikeSimulations, stacklevel=4)

    def map(self, x: Any = None, *, num_samples: int = 5000, seed: int | None = None) -> Tensor:
        """The densest of many draws, ``(*theta_shape,)``: an estimate of the most probable parameter.

        The one whose nearest fiftieth of all draws lies within the smallest distance, in standard deviations of the
        parameters. It is as precise as draws are dense there, and no optimum is sought.
        """
        return densest(self.sample((num_samples,), x, show_progress_bars=False, seed=seed))

    def summary(self, x: Any = None, *, num_samples: int = 10_000, seed: int | None = None) -> Summary:
        """Mean, standard deviation, median and central 90 % interval of each parameter: a mapping, and a table."""
        samples = self.sample((num_samples,), x, show_progress_bars=False, seed=seed)
        return summarise(samples.cpu().numpy(), self.parameter_names)

    def to_dataframe(self, x: Any = None, *, num_samples: int = 1000, seed: int | None = None) -> Any:
        """Draws as a ``pandas.DataFrame``: a row for each, a column for each parameter."""
        draws = self.sample((num_samples,), x, seed=seed).cpu().numpy()
        return dataframe_of(draws, self.parameter_names)

    def to_arviz(
        self,
        x: Any = None,
        *,
        num_samples: int = 1000,
        predictive: Any = None,
        reference: Any = None,
        seed: int | None = None,
    ) -> Any:
        """Draws for ArviZ: an ``xarray.DataTree`` with ArviZ 1, ``InferenceData`` with ArviZ 0.x.

        The groups are ``posterior`` and ``observed_data``, ``prior`` where it is at hand, ``posterior_predictive`` and
        ``reference`` where they are given. Each parameter is a variable; a field is one variable with its own axes.

        Arguments:
            x: The observation; by default the default one.
            num_samples: Posterior draws, in one chain.
            predictive: The simulator, which is run on every draw (rows that fail are left out), or data that were
                simulated already, ``(num_samples, *x_shape)``.
            reference: Draws of another posterior to compare with, ``(k, *theta_shape)``.
            seed: The same seed gives the same result.
        """
        observed = self._observation(x)
        draws = self.sample((num_samples,), observed[0], seed=seed).cpu().numpy()
        groups = Groups(self.parameter_names, self.theta_shape, self.x_names)
        given = {"prior": self.prior, "predictive": predictive, "reference": reference}
        add_posterior(groups, draws, **given, seed=seed or 0)
        groups.add_data("observed_data", observed[0].cpu().numpy(), draws=False)
        return arviz_of(groups)

    @torch_defaults()
    def set_default_x(self, x: Any) -> Posterior:
        """Remember an observation; returns the posterior itself."""
        self.default_x = self._observation(x)
        return self

    def _observation(self, x: Any) -> Tensor:
        """One observation ``(1, *x_shape)``: the given or the default one."""
        if x is not None:
            given = one_observation(x, self.x_shape, layout=self.layout, missing=self.takes_missing)
            return torch.as_tensor(given).unsqueeze(0)
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

        The default observation, the recipe, the training history and the statistics of the simulations are kept, the
        prior is not.
        """
        parts = self.recipe, self.history, self.info, self.default_x, self.typicality_test, self.x_names
        write_posterior(to_path("folder", folder), SavedPosterior(self.sampler, self.parameter_names, *parts))
        return Path(folder)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        network: nn.Module | None = None,
        embedding: nn.Module | None = None,
        support: Callable[..., Any] | None = None,
        prior: Any = None,
    ) -> Posterior:
        """Read a saved posterior.

        Arguments:
            folder: Where it was saved.
            network: The network of your own it was trained with, if any: of the same architecture; its weights are in
                the file.
            embedding: Likewise an embedding of your own.
            support: The function that tells which parameters are allowed, if it was trained with one.
            prior: The prior, if it is wanted on the posterior.
        """
        saved = read_posterior(
            to_path("folder", folder), {"network": network, "embedding": embedding, "support": support}
        )
        posterior = cls(
            saved.sampler,
            parameter_names=saved.parameter_names,
            prior=prior,
            recipe=saved.recipe,
            history=saved.history,
            info=saved.info,
            typicality_test=saved.typicality_test,
            x_names=saved.x_names,
        )
        return posterior if saved.default_x is None else posterior.set_default_x(saved.default_x)
