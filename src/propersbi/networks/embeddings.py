r"""Embeddings: from data of any kind to features of fixed number, once per observation.

.. math:: e(x) = \big(s(x),\; l(x)\big)

The first features are fixed statistics :math:`s`, which need no training: a linear regression can start from them, and
a short training finds most of what they say. The others :math:`l` are learnt, and add what the statistics leave out.

Data arrive standardised, with NaN for entries that are missing. Adding missing entries changes nothing: neither padding
a set or a series, nor the value of what is hidden.
"""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from propersbi.networks.statistics import split_missing
from propersbi.samplers import Sampler, Standardize
from propersbi.types import InputError

__all__ = ["Embedding", "EmbeddingSampler", "VectorEmbedding"]

MAX_IMPUTED = 64  # numbers up to which missing ones are predicted from the others: a linear system for each row
EM_STEPS = 10
RIDGE = 1e-4  # added to the variances of standardised data
STATISTICS_TAIL = 5.0  # standard deviations beyond which statistics are compressed


class Embedding(nn.Module, ABC):
    """Fixed statistics and learnt features of data; subclasses say how in three methods.

    Arguments:
        x_shape: The event shape of the data.
        names: One for each statistic.
    """

    learnt: int = 0

    def __init__(self, x_shape: Sequence[int], names: Sequence[str]) -> None:
        super().__init__()
        self.x_shape, self.names = tuple(x_shape), tuple(names)
        self.units = Standardize((max(1, self.fixed),), tail=STATISTICS_TAIL)
        self._recent: tuple[Any, tuple[int, int], Tensor] | None = None

    @property
    def fixed(self) -> int:
        """The number of fixed statistics, which come first among the features."""
        return len(self.names)

    @property
    def features(self) -> int:
        """The number of all features."""
        return self.fixed + self.learnt

    @abstractmethod
    def compute(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n fixed"]:
        """The statistics in their own units, NaN where they are undefined."""

    def learn(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n learnt"]:
        """The learnt features; none by default."""
        return x.new_zeros(len(x), 0)

    def prepare(self, x: Float[Tensor, "n *x"]) -> None:
        """Find the units of the statistics."""
        self._recent = None
        if self.fixed:
            self.units.fit(self.compute(x))

    def statistics(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n fixed"]:
        """The statistics, standardised; one that is undefined is the average one.

        Those of the last data are kept: a regression and the network ask for the same.
        """
        units = self.units.center
        if self._recent is None or self._recent[0]() is not x or self._recent[1] != (id(units), units._version):
            found = self.units(self.compute(x)).nan_to_num(0.0) if self.fixed else x.new_zeros(len(x), 0)
            self._recent = weakref.ref(x), (id(units), units._version), found
        return self._recent[2]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_recent": None}

    def forward(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n features"]:
        return torch.cat([self.statistics(x), self.learn(x)], 1)


class EmbeddingSampler(Sampler):
    """A sampler that may have an embedding in front, whose fixed statistics a regression uses in place of the data."""

    embedding: nn.Module | None

    @property
    def regressors(self) -> int:
        """The statistics of the embedding, if it has some."""
        return self.embedding.fixed if isinstance(self.embedding, Embedding) else super().regressors

    def prepare_regressors(self, x: Float[Tensor, "n *x"]) -> None:
        """Prepare the embedding."""
        if isinstance(self.embedding, Embedding):
            self.embedding.prepare(x)

    def regress_on(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n regressors"]:
        """The statistics of the embedding, if it has some."""
        return self.embedding.statistics(x) if isinstance(self.embedding, Embedding) else super().regress_on(x)


class VectorEmbedding(Embedding):
    r"""A vector with missing entries, filled in by the linear prediction from those that are there.

    With the mean :math:`\mu` and covariance :math:`C` of the data, found by the EM algorithm, and the observed entries
    :math:`o`,

    .. math:: \hat x = \mu + C_{\cdot o} C_{oo}^{-1} (x_o - \mu_o), \qquad
              v = \operatorname{diag}\big(C - C_{\cdot o} C_{oo}^{-1} C_{o \cdot}\big).

    The features are :math:`\hat x`, the standard deviations :math:`\sqrt v` and the mask. If data and parameters are
    jointly Gaussian, the posterior mean is linear in :math:`\hat x` for every pattern of missing entries, also for
    those that training never saw. Vectors of more than 64 numbers are filled with their mean.

    Arguments:
        x_shape: The event shape of the data, which are flattened.

    Examples:
        >>> embedding = VectorEmbedding((2,))
        >>> x = torch.randn(1000, 1).expand(1000, 2)  # two equal numbers
        >>> embedding.prepare(x)
        >>> features = embedding(torch.tensor([[1.5, torch.nan]]))
        >>> bool((features[0, 1] - features[0, 0]).abs() < 0.01), features[0, -2:]
        (True, tensor([1., 0.]))
    """

    center: Tensor
    covariance: Tensor

    def __init__(self, x_shape: Sequence[int]) -> None:
        self.size = math.prod(x_shape)
        self.predicted = self.size <= MAX_IMPUTED
        kinds = ["x", "sd", "known"] if self.predicted else ["x", "known"]
        super().__init__(x_shape, [f"{kind}[{i}]" for kind in kinds for i in range(self.size)])
        d = self.size if self.predicted else 0
        self.register_buffer("center", torch.zeros(d, dtype=torch.float64))
        self.register_buffer("covariance", torch.eye(d, dtype=torch.float64))

    def prepare(self, x: Float[Tensor, "n *x"]) -> None:
        """Find mean and covariance by the EM algorithm, then the units."""
        if self.predicted:
            values, mask = split_missing(x.flatten(1).double())
            self.center.copy_(values.sum(0) / mask.sum(0).clamp_min(1))
            spread = torch.where(mask, values - self.center, 0.0).square().sum(0) / mask.sum(0).clamp_min(1)
            self.covariance.copy_(torch.diag(spread + RIDGE))
            for _ in range(1 if bool(mask.all()) else EM_STEPS):
                self._em_step(values, mask)
        super().prepare(x)

    def compute(self, x: Float[Tensor, "n *x"]) -> Float[Tensor, "n fixed"]:
        values, mask = split_missing(x.flatten(1))
        if not self.predicted:
            return torch.cat([values, mask.float()], 1)
        filled, rest = self._fill(values.double(), mask)
        deviation = rest.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt()
        return torch.cat([filled, deviation, mask], 1).float()

    def _fill(self, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Missing entries predicted from the others, and the covariance ``(n, d, d)`` of the errors."""
        known = mask.double()
        both = known.unsqueeze(2) * known.unsqueeze(1)
        inner = self.covariance * both + torch.diag_embed(1 - known)
        across = self.covariance * known.unsqueeze(1)  # (n, d, d): of all numbers with the known ones
        weights = torch.cholesky_solve(across.transpose(1, 2), torch.linalg.cholesky(inner)).transpose(1, 2)
        moved = torch.where(mask, values - self.center, 0.0).unsqueeze(2)
        filled = torch.where(mask, values, self.center + (weights @ moved).squeeze(2))
        rest = (
            (self.covariance - weights @ across.transpose(1, 2)) * (1 - known).unsqueeze(2) * (1 - known).unsqueeze(1)
        )
        return filled, rest

    def _em_step(self, values: Tensor, mask: Tensor) -> None:
        total, square, n = torch.zeros_like(self.center), torch.zeros_like(self.covariance), len(values)
        for rows, there in zip(values.split(1000), mask.split(1000), strict=True):
            filled, rest = self._fill(rows, there)
            total += filled.sum(0)
            square += filled.T @ filled + rest.sum(0)
        center = total / n
        self.covariance.copy_(square / n - torch.outer(center, center) + RIDGE * torch.eye(len(center)).to(center))
        self.center.copy_(center)


def check_shape(kind: str, shape: Sequence[int], fits: bool, expected: str) -> None:
    """Refuse data of another shape."""
    if not fits:
        raise InputError(f"{kind} data have the shape {expected}, got {tuple(shape)}.")
