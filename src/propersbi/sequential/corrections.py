r"""Corrections: how to train the posterior on simulations whose parameters come from a proposal, not the prior.

Parameters of round :math:`r` come from a proposal :math:`p_r(\theta)`; the first proposal is the prior. All rounds
together follow the mixture :math:`\tilde p = \sum_r \frac{n_r}{n} p_r`, and a network that is trained on them as they
are learns :math:`\tilde p(\theta \mid x) \propto \tilde p(\theta)\, p(x \mid \theta)`, which is not the posterior.
Since the prior is part of the mixture, :math:`p / \tilde p \le n / n_1`: no weight is larger than that.

=============================  =============================================================================
:class:`Uncorrected`           nothing is done, to see the bias
:class:`ImportanceWeights`     each row's score is multiplied by :math:`p(\theta) / \tilde p(\theta)`
:class:`CorrectedLatent`       the generator's draws are made to follow :math:`\tilde p(\theta \mid x)` in training
:class:`Truncated`             proposals are the prior within a region, and nothing has to be corrected
=============================  =============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from propersbi.building import TrainingSet, WrapSampler
from propersbi.inference import checked_weight
from propersbi.posterior import Posterior
from propersbi.samplers.base import Sampler, has_density
from propersbi.samplers.generator import Generator
from propersbi.samplers.latent import Latent, LatentCorrected, Rejection
from propersbi.sequential.ratio import Ratio, effective_share, estimate_ratio, tamed
from propersbi.sequential.regions import Region, TruncatedPrior
from propersbi.simulation import Simulations, draw
from propersbi.storage.checks import check_number, check_whole
from propersbi.storage.randomness import stream
from propersbi.training.batches import as_tensor
from propersbi.types import InputError

__all__ = [
    "Corrected",
    "CorrectedLatent",
    "Correction",
    "ImportanceWeights",
    "PosteriorProposal",
    "Rounds",
    "Truncated",
    "Uncorrected",
]

CLASSIFIER_STEPS = 1000  # gradient steps of a classifier, at most


@dataclass(frozen=True, eq=False)
class Rounds:
    """The rounds so far: a proposal, ``theta`` and ``x`` for each; the first proposal is the prior."""

    proposals: tuple[Any, ...]
    theta: tuple[np.ndarray, ...]
    x: tuple[np.ndarray, ...]
    seed: int = 0
    folder: Path | None = None

    @property
    def prior(self) -> Any:
        """The first proposal."""
        return self.proposals[0]

    @property
    def sizes(self) -> list[int]:
        """Simulations of each round."""
        return [len(rows) for rows in self.theta]

    def add(self, new: Simulations, folder: Path | None) -> Rounds:
        """One more round of simulations; what it brings is kept in a folder."""
        theta, x = (*self.theta, np.asarray(new.theta)), (*self.x, np.asarray(new.x))
        return replace(self, theta=theta, x=x, folder=folder)

    def propose(self, proposal: Any) -> Rounds:
        """The proposal of the next round."""
        return replace(self, proposals=(*self.proposals, proposal))

    def training_set(
        self,
        rows: np.ndarray | None = None,
        *,
        weight: np.ndarray | None = None,
        wrap_sampler: WrapSampler | None = None,
    ) -> TrainingSet:
        """The pairs of all rounds, or some rows of them."""
        theta, x = np.concatenate(self.theta), np.concatenate(self.x)
        if rows is not None:
            theta, x = theta[rows], x[rows]
        return TrainingSet(theta, x, weight, wrap_sampler=wrap_sampler)


@dataclass(frozen=True, eq=False)
class Corrected:
    """What a round trains on.

    Arguments:
        data: Pairs, perhaps weighted, and what the sampler is trained through.
        prior: The distribution of the parameters for which the posterior is calibrated, if not the prior.
        facts: Numbers about it, for the record of the round.
    """

    data: TrainingSet
    prior: Any = None
    facts: dict[str, float] = field(default_factory=dict)


@runtime_checkable
class Correction(Protocol):
    """Where the next parameters come from, and how the training accounts for it."""

    def propose(self, rounds: Rounds, posterior: Posterior) -> Any:
        """What the next round draws its parameters from: anything that is accepted as a prior."""

    def prepare(self, rounds: Rounds) -> Corrected:
        """What to train on."""


@dataclass(frozen=True, eq=False)
class PosteriorProposal:
    """The posterior of the observation as the prior of the next round; it gives NumPy or torch as the prior does."""

    posterior: Posterior
    as_torch: bool = False

    def sample(self, n: int, rng: np.random.Generator) -> Any:
        """``n`` draws."""
        theta = self.posterior.sample((n,), seed=int(rng.integers(2**62)), show_progress_bars=False).cpu()
        return theta if self.as_torch else theta.numpy()

    def log_prob(self, theta: Any) -> Tensor:
        """The log density of each row, for posteriors that have one."""
        return self.posterior.log_prob(theta)


class _Proposed:
    """Corrections whose proposal is the last posterior."""

    def propose(self, rounds: Rounds, posterior: Posterior) -> PosteriorProposal:
        """The posterior of the last round."""
        with stream(rounds.seed) as rng:
            as_torch = isinstance(draw(rounds.prior, 1, rng), Tensor)
        return PosteriorProposal(posterior, as_torch)


@dataclass(frozen=True)
class Uncorrected(_Proposed):
    """Train on all rounds as if they came from the prior. Biased: it shows what the corrections are for."""

    def prepare(self, rounds: Rounds) -> Corrected:
        """All rows, as they are."""
        return Corrected(rounds.training_set())


@dataclass(frozen=True)
class ImportanceWeights(_Proposed):
    r"""Weight each row's score by prior over proposal, :math:`w(\theta) = p(\theta) / \tilde p(\theta)`.

    The expected score is then that under the prior. A factor that depends on the data alone does not move its minimum,
    so the weights may be multiplied by :math:`\tilde p(x) / p(x)`, another ratio: data near the observation, of which
    later rounds bring more, then count as often as they were simulated, and the average weight is 1 at every :math:`x`.

    Arguments:
        limit: Cut weights at this size and its inverse; ``None`` cuts only where no true weight can lie.
        smoothing: Added to the probabilities of the classifier.
        localized: Whether to multiply by the ratio of the data.
        draws: Parameters from each distribution that the classifier learns from; they cost no simulations.
    """

    limit: float | None = None
    smoothing: float = 0.0
    localized: bool = True
    draws: int = 20_000

    def prepare(self, rounds: Rounds) -> Corrected:
        """All rows and their weights."""
        if len(rounds.sizes) == 1:
            return Corrected(rounds.training_set())
        log_ratio, facts = proposal_over_prior(rounds, self.draws)
        log_weight = -log_ratio(as_tensor(np.concatenate(rounds.theta)))
        if self.localized:
            seen = _ratio(rounds, "x", np.concatenate(rounds.x), rounds.x[0])
            log_weight = log_weight + seen.log(as_tensor(np.concatenate(rounds.x)))
            facts["data_log_loss"] = seen.log_loss
        weight = tamed(log_weight.double(), limit=self.limit, smoothing=self.smoothing).exp()
        facts["effective"] = effective_share(weight)
        return Corrected(rounds.training_set(weight=checked_weight(weight, sum(rounds.sizes))), facts=facts)


@dataclass(frozen=True)
class CorrectedLatent(_Proposed):
    r"""Draw the generator's noise from :math:`p(z)\, \tilde p(\theta) / p(\theta)` at :math:`\theta = g(z, x)`.

    Its draws then follow the proposal's posterior and are scored against what was proposed; at sampling time the noise
    is normal again, and the draws follow the posterior. The ratio of the data, :math:`p(x) / \tilde p(x)`, is the same
    for all draws of a row and cancels. For generators that draw in one pass (``refinement_steps=1``).

    Arguments:
        latent: :class:`~propersbi.samplers.latent.Rejection` or :class:`~propersbi.samplers.latent.Metropolis`.
        limit: Cut ratios at this size and its inverse.
        smoothing: Added to the probabilities of the classifier.
        draws: Parameters from each distribution that the classifier learns from; they cost no simulations.
    """

    latent: Latent = field(default_factory=Rejection)
    limit: float | None = None
    smoothing: float = 0.0
    draws: int = 20_000

    def prepare(self, rounds: Rounds) -> Corrected:
        """All rows, and a sampler with corrected noise."""
        if len(rounds.sizes) == 1:
            return Corrected(rounds.training_set())
        log_ratio, facts = proposal_over_prior(rounds, self.draws)

        def log_weight(theta: Tensor) -> Tensor:
            flat = theta.reshape(-1, *rounds.theta[0].shape[1:])
            tame = tamed(log_ratio(flat), limit=self.limit, smoothing=self.smoothing)
            return tame.reshape(theta.shape[:2]).float()

        def wrap(sampler: Sampler, in_user_units: Callable[[Tensor], Tensor]) -> Sampler:
            if not isinstance(sampler, Generator):
                raise InputError(
                    "Latent variables are corrected for generators of one pass: ask for refinement_steps=1."
                )
            return LatentCorrected(sampler, self.latent, log_weight, in_user_units)

        return Corrected(rounds.training_set(wrap_sampler=wrap), facts=facts)


@dataclass(frozen=True)
class Truncated:
    r"""Propose from the prior, restricted to the region that holds a share of the last posterior's draws.

    Each region lies within the one before. Then the rows of every round that lie in the last one are draws of the
    restricted prior, :math:`p(\theta)\, 1[\theta \in R]`, and so is all that is learnt: no weights, no ratios. The
    posterior of the observation is hardly touched if the region holds it with a margin.

    References: Deistler, Goncalves & Macke, Truncated proposals for scalable and hassle-free simulation-based
    inference, 2022, https://arxiv.org/abs/2210.04815 (there the region is found by a density, here by draws).

    Arguments:
        level: The share of the posterior's draws that the region holds.
        draws: Posterior draws that the region is found with.
    """

    level: float = 0.999
    draws: int = 10_000

    def __post_init__(self) -> None:
        check_number("level", self.level, "lie in (0, 1]", 0, math.nextafter(1, 2))
        check_whole("draws", self.draws, 1)

    def propose(self, rounds: Rounds, posterior: Posterior) -> TruncatedPrior:
        """The prior where the last posterior has its draws."""
        theta = posterior.sample((self.draws,), seed=rounds.seed, show_progress_bars=False).cpu().numpy()
        last = rounds.proposals[-1]
        within = last.region if isinstance(last, TruncatedPrior) else None
        return TruncatedPrior(rounds.prior, Region.around(theta, self.level, within=within))

    def prepare(self, rounds: Rounds) -> Corrected:
        """The rows of all rounds in the last region."""
        last = rounds.proposals[-1]
        if not isinstance(last, TruncatedPrior):
            return Corrected(rounds.training_set())
        rows = np.concatenate([last.region(theta) for theta in rounds.theta])
        facts = {"rows": int(rows.sum()), "prior_share": last.share(rounds.seed)}
        return Corrected(rounds.training_set(rows), prior=last, facts=facts)


def proposal_over_prior(rounds: Rounds, draws: int) -> tuple[Callable[[Tensor], Tensor], dict[str, float]]:
    r"""The logarithm of :math:`\tilde p(\theta) / p(\theta)` and how good it is: exact, or by a classifier.

    It is exact where the prior and all proposals have a ``log_prob``. Else as many draws as wanted are taken from both.
    The ratio is nowhere below the share of the first round.
    """
    shares = np.array(rounds.sizes) / sum(rounds.sizes)
    least = float(np.log(shares[0]))
    densities = [_log_density(proposal) for proposal in rounds.proposals]
    if all(densities):

        def exact(theta: Tensor) -> Tensor:
            columns = torch.stack([density(theta) for density in densities])  # type: ignore[misc]
            parts = columns + as_tensor(shares).log()[:, None]
            return (torch.logsumexp(parts, 0) - columns[0]).clamp_min(least)

        return exact, {}
    with stream(rounds.seed, len(rounds.sizes)) as rng:
        counts = [max(1, round(draws * share)) for share in shares]
        proposed = [_numbers(draw(p, n, rng)) for p, n in zip(rounds.proposals, counts, strict=True)]
        usual = _numbers(draw(rounds.prior, draws, rng))
    ratio = _ratio(rounds, "theta", np.concatenate(proposed), usual)
    facts = {"log_loss": ratio.log_loss, "slope": ratio.slope, "effective": ratio.effective}
    return lambda theta: ratio.log(theta).clamp_min(least), facts


def _log_density(source: Any) -> Callable[[Tensor], Tensor] | None:
    """The log density of rows ``(n, *event)`` as ``(n,)``, in double precision; ``None`` where there is none."""
    if isinstance(source, PosteriorProposal):
        has = has_density(source.posterior.sampler)
        return (lambda theta: source.log_prob(theta.float()).cpu().double()) if has else None
    if isinstance(source, torch.distributions.Distribution):

        def summed(theta: Tensor) -> Tensor:
            values = theta.reshape(-1) if not (source.batch_shape + source.event_shape) else theta
            return source.log_prob(values).double().reshape(len(theta), -1).sum(1)

        return summed
    if hasattr(source, "log_prob"):
        return lambda theta: torch.as_tensor(np.asarray(source.log_prob(theta.numpy()))).double().reshape(len(theta))
    return None


def _numbers(theta: Any) -> np.ndarray:
    return theta.detach().cpu().numpy() if isinstance(theta, Tensor) else np.asarray(theta)


def _ratio(rounds: Rounds, name: str, upper: np.ndarray, lower: np.ndarray) -> Ratio:
    checkpoint = None if rounds.folder is None else rounds.folder / f"ratio-{name}.ckpt"
    return estimate_ratio(upper, lower, seed=rounds.seed, max_steps=CLASSIFIER_STEPS, checkpoint=checkpoint)
