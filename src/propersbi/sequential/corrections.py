r"""Corrections: how simulations that were proposed, and not drawn from the prior, still teach the posterior.

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

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from propersbi.training.batches import as_tensor
from propersbi.samplers.latent import CorrectedSampler, Latent, Rejection
from propersbi.posterior import Posterior
from propersbi.storage.randomness import stream
from propersbi.sequential.ratio import Ratio, effective_share, estimate_ratio, tamed
from propersbi.sequential.regions import Region, TruncatedPrior
from propersbi.simulation.simulations import draw
from propersbi.types import InputError

__all__ = [
    "CorrectedLatent",
    "Correction",
    "ImportanceWeights",
    "Lesson",
    "Past",
    "PosteriorProposal",
    "Truncated",
    "Uncorrected",
]

CLASSIFYING = 1000  # steps that a classifier is trained for at most


@dataclass(frozen=True, eq=False)
class Past:
    """What was simulated so far: a proposal, ``theta`` and ``x`` for each round; the prior is the first."""

    proposals: tuple[Any, ...]
    theta: tuple[np.ndarray, ...]
    x: tuple[np.ndarray, ...]
    seed: int = 0
    folder: Path | None = None

    @property
    def prior(self) -> Any:
        return self.proposals[0]

    @property
    def sizes(self) -> list[int]:
        return [len(rows) for rows in self.theta]


@dataclass(frozen=True, eq=False)
class Lesson:
    """What a round trains on.

    Arguments:
        rows: Which of all rounds; ``None`` for all.
        weight: How they weigh.
        through: What the sampler is trained through.
        law: The law of the parameters for which the posterior is calibrated, if not the prior.
        facts: What is to be told about it.
    """

    rows: np.ndarray | None = None
    weight: np.ndarray | None = None
    through: Callable[[Any, Callable[[Tensor], Tensor]], Any] | None = None
    law: Any = None
    facts: dict[str, float] = field(default_factory=dict)


class Correction(Protocol):
    """Where the next parameters come from, and what is to be done about it."""

    def propose(self, past: Past, posterior: Posterior) -> Any:
        """What the next round draws its parameters from: a prior of its own."""

    def prepare(self, past: Past) -> Lesson:
        """How the simulations of all rounds are to be learnt from."""


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

    def propose(self, past: Past, posterior: Posterior) -> PosteriorProposal:
        """The posterior of the last round."""
        with stream(past.seed) as rng:
            as_torch = isinstance(draw(past.prior, 1, rng), Tensor)
        return PosteriorProposal(posterior, as_torch)


@dataclass(frozen=True)
class Uncorrected(_Proposed):
    """Train on all rounds as if they came from the prior. Biased: it shows what the corrections are for."""

    def prepare(self, past: Past) -> Lesson:  # noqa: ARG002
        """All rows, as they are."""
        return Lesson()


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
        draws: Parameters from each law that the classifier learns from; they cost no simulations.
    """

    limit: float | None = None
    smoothing: float = 0.0
    localized: bool = True
    draws: int = 20_000

    def prepare(self, past: Past) -> Lesson:
        """All rows and their weights."""
        if len(past.sizes) == 1:
            return Lesson()
        log_ratio, facts = proposal_over_prior(past, self.draws)
        log_weight = -log_ratio(as_tensor(np.concatenate(past.theta)))
        if self.localized:
            seen = _ratio(past, "x", np.concatenate(past.x), past.x[0])
            log_weight = log_weight + seen.log(as_tensor(np.concatenate(past.x)))
            facts["data_log_loss"] = seen.log_loss
        weight = tamed(log_weight.double(), limit=self.limit, smoothing=self.smoothing).exp()
        facts["effective"] = effective_share(weight)
        return Lesson(weight=weight.numpy(), facts=facts)


@dataclass(frozen=True)
class CorrectedLatent(_Proposed):
    r"""Draw the generator's noise from :math:`p(z)\, \tilde p(\theta) / p(\theta)` at :math:`\theta = g(z, x)`.

    Its draws then follow the proposal's posterior and are scored against what was proposed; at sampling time the noise
    is normal again, and the draws follow the posterior. The ratio of the data, :math:`p(x) / \tilde p(x)`, is the same
    for all draws of a row and cancels. For generators that draw in one pass (``steps=1``).

    Arguments:
        latent: :class:`~propersbi.samplers.latent.Rejection` or :class:`~propersbi.samplers.latent.Metropolis`.
        limit: Cut ratios at this size and its inverse.
        smoothing: Added to the probabilities of the classifier.
        draws: Parameters from each law that the classifier learns from; they cost no simulations.
    """

    latent: Latent = field(default_factory=Rejection)
    limit: float | None = None
    smoothing: float = 0.0
    draws: int = 20_000

    def prepare(self, past: Past) -> Lesson:
        """All rows, and a sampler with corrected noise."""
        if len(past.sizes) == 1:
            return Lesson()
        log_ratio, facts = proposal_over_prior(past, self.draws)

        def log_weight(theta: Tensor) -> Tensor:
            flat = theta.reshape(-1, *past.theta[0].shape[1:])
            tame = tamed(log_ratio(flat), limit=self.limit, smoothing=self.smoothing)
            return tame.reshape(theta.shape[:2]).float()

        return Lesson(
            through=lambda sampler, natural: CorrectedSampler(sampler, self.latent, log_weight, natural), facts=facts
        )


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
        if not 0 < self.level <= 1:
            raise InputError(f"'level' must lie in (0, 1], got {self.level}.")

    def propose(self, past: Past, posterior: Posterior) -> TruncatedPrior:
        """The prior where the last posterior has its draws."""
        theta = posterior.sample((self.draws,), seed=past.seed, show_progress_bars=False).cpu().numpy()
        last = past.proposals[-1]
        within = last.region if isinstance(last, TruncatedPrior) else None
        return TruncatedPrior(past.prior, Region.around(theta, self.level, within=within))

    def prepare(self, past: Past) -> Lesson:
        """The rows of all rounds in the last region."""
        last = past.proposals[-1]
        if not isinstance(last, TruncatedPrior):
            return Lesson()
        rows = np.concatenate([last.region(theta) for theta in past.theta])
        facts = {"rows": int(rows.sum()), "prior_share": last.share(past.seed)}
        return Lesson(rows=rows, law=last, facts=facts)


def proposal_over_prior(past: Past, draws: int) -> tuple[Callable[[Tensor], Tensor], dict[str, float]]:
    r"""The logarithm of :math:`\tilde p(\theta) / p(\theta)` and how good it is: exact, or by a classifier.

    It is exact where the prior and all proposals have a ``log_prob``. Else as many draws as wanted are taken from both.
    The ratio is nowhere below the share of the first round.
    """
    shares = np.array(past.sizes) / sum(past.sizes)
    least = float(np.log(shares[0]))
    densities = [_log_density(proposal) for proposal in past.proposals]
    if all(densities):

        def exact(theta: Tensor) -> Tensor:
            columns = torch.stack([density(theta) for density in densities])  # type: ignore[misc]
            parts = columns + as_tensor(shares).log()[:, None]
            return (torch.logsumexp(parts, 0) - columns[0]).clamp_min(least)

        return exact, {}
    with stream(past.seed, len(past.sizes)) as rng:
        counts = [max(1, round(draws * share)) for share in shares]
        proposed = [_numbers(draw(p, n, rng)) for p, n in zip(past.proposals, counts, strict=True)]
        usual = _numbers(draw(past.prior, draws, rng))
    ratio = _ratio(past, "theta", np.concatenate(proposed), usual)
    facts = {"log_loss": ratio.log_loss, "slope": ratio.slope, "effective": ratio.effective}
    return lambda theta: ratio.log(theta).clamp_min(least), facts


def _log_density(law: Any) -> Callable[[Tensor], Tensor] | None:
    """The log density of rows ``(n, *event)`` as ``(n,)``, in double precision; ``None`` where a law has none."""
    if isinstance(law, PosteriorProposal):
        has = hasattr(law.posterior.sampler, "log_prob")
        return (lambda theta: law.log_prob(theta.float()).cpu().double()) if has else None
    if isinstance(law, torch.distributions.Distribution):

        def summed(theta: Tensor) -> Tensor:
            values = theta.reshape(-1) if not (law.batch_shape + law.event_shape) else theta
            return law.log_prob(values).double().reshape(len(theta), -1).sum(1)

        return summed
    if hasattr(law, "log_prob"):
        return lambda theta: torch.as_tensor(np.asarray(law.log_prob(theta.numpy()))).double().reshape(len(theta))
    return None


def _numbers(theta: Any) -> np.ndarray:
    return theta.detach().cpu().numpy() if isinstance(theta, Tensor) else np.asarray(theta)


def _ratio(past: Past, name: str, upper: np.ndarray, lower: np.ndarray) -> Ratio:
    checkpoint = None if past.folder is None else past.folder / f"ratio-{name}.ckpt"
    return estimate_ratio(upper, lower, seed=past.seed, max_steps=CLASSIFYING, checkpoint=checkpoint)
