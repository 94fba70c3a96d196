r"""Matrices under a constraint, by their Cholesky factor :math:`L`, where :math:`\Sigma = L L^T`.

=========================  ==========================================================================================
:class:`PositiveDefinite`  the entries of :math:`L`, with a positive diagonal
:class:`Correlation`       :math:`u_{ij} = L_{ij} / (1 - \sum_{k<j} L_{ik}^2)^{1/2}`, partial correlations
=========================  ==========================================================================================

Densities are those of the entries on and below the diagonal; of correlations, of those below it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.samplers.bounds import Box
from propersbi.samplers.constraints import OPEN_UNIT, TINY, Shaped, check_size

__all__ = ["Correlation", "PositiveDefinite"]

LEAST = 1e-18  # of the diagonal of a factor: its square is not zero in single precision
FLATTEST = 1e-3  # the least share of a row that the diagonal has: matrices stay positive definite in single precision


@dataclass(frozen=True)
class PositiveDefinite(Shaped):
    """Positive definite matrices, as those of a Wishart distribution, or their Cholesky factors.

    Arguments:
        size: Of the matrix.
        cholesky: Whether parameters are the factors L themselves: lower triangular, with a positive diagonal.

    Examples:
        >>> PositiveDefinite(2).to_real(torch.tensor([[4.0, 2.0, 2.0, 10.0]]))
        tensor([[2., 1., 3.]])
    """

    size: int
    cholesky: bool = False

    def __post_init__(self) -> None:
        check_size(self.size, 1)

    @property
    def box(self) -> Box:
        """A positive diagonal."""
        return Box(tuple(0.0 if i == j else None for i in range(self.size) for j in range(self.size)))

    @property
    def shape(self) -> tuple[int, ...]:
        """A square."""
        return (self.size, self.size)

    @property
    def count(self) -> int:
        """On and below the diagonal."""
        return self.size * (self.size + 1) // 2

    @property
    def reals(self) -> Box:
        """The diagonal of the factor is positive."""
        return Box(tuple(LEAST if i == j else None for i in range(self.size) for j in range(i + 1)))

    def to_real(self, theta: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch k"]:
        """The entries of the Cholesky factor, row by row."""
        factor = theta.unflatten(-1, self.shape)
        factor = factor if self.cholesky else _cholesky(factor)
        rows, columns = torch.tril_indices(self.size, self.size)
        return factor[..., rows, columns]

    def from_real(
        self, real: Float[Tensor, "*batch k"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*batch d"]:
        """The matrix with this factor."""
        factor = _lower(self.reals(real, dtype).double(), self.size, 0)
        if not self.cholesky:
            least = FLATTEST * math.sqrt(self.size) * factor.norm(dim=-1)
            factor = factor.tril(-1) + torch.maximum(factor.diagonal(dim1=-2, dim2=-1), least).diag_embed()
            factor = _square(factor)
        return factor.to(dtype).flatten(-2)

    def log_volume(self, real: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
        r"""For matrices :math:`2^p \prod_i L_{ii}^{p - i + 1}`."""
        if self.cholesky:
            return super().log_volume(real)
        diagonal = _lower(real, self.size, 0).diagonal(dim1=-2, dim2=-1)
        powers = torch.arange(self.size, 0, -1, device=real.device)
        return (diagonal.clamp_min(TINY).log() * powers).sum(-1) + self.size * math.log(2)


@dataclass(frozen=True)
class Correlation(Shaped):
    """Correlation matrices, or their Cholesky factors, as those of torch's ``LKJCholesky``.

    Arguments:
        size: Of the matrix, at least 2.
        cholesky: Whether parameters are the factors L themselves: lower triangular, with rows of length one.

    Examples:
        >>> Correlation(2).to_real(torch.tensor([[1.0, 0.5, 0.5, 1.0]]))
        tensor([[0.5000]])
    """

    size: int
    cholesky: bool = False

    def __post_init__(self) -> None:
        check_size(self.size, 2)

    @property
    def box(self) -> Box:
        """From -1 to 1."""
        return Box(-1.0, 1.0)

    @property
    def shape(self) -> tuple[int, ...]:
        """A square."""
        return (self.size, self.size)

    @property
    def count(self) -> int:
        """Below the diagonal."""
        return self.size * (self.size - 1) // 2

    @property
    def reals(self) -> Box:
        """Partial correlations."""
        return Box(-OPEN_UNIT[1], OPEN_UNIT[1])

    def to_real(self, theta: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch k"]:
        """Each entry of the factor in units of what those before it in its row have left."""
        factor = theta.unflatten(-1, self.shape)
        factor = factor if self.cholesky else _cholesky(factor)
        left = (1 - factor.square().cumsum(-1) + factor.square()).clamp_min(TINY).sqrt()
        rows, columns = torch.tril_indices(self.size, self.size, offset=-1)
        return (factor / left)[..., rows, columns].clamp(-1, 1)

    def from_real(
        self, real: Float[Tensor, "*batch k"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*batch d"]:
        """The matrix with these partial correlations."""
        partial = _lower(self.reals(real, dtype).double(), self.size, -1)
        factor = _unit_diagonal(partial) * self._left(partial).sqrt()
        if not self.cholesky:
            least = torch.full_like(factor[..., 0], FLATTEST * math.sqrt(self.size))
            factor = factor.tril(-1) + torch.maximum(factor.diagonal(dim1=-2, dim2=-1), least).diag_embed()
            factor = _square(factor / factor.norm(dim=-1, keepdim=True))
            factor = _unit_diagonal(factor)
        return factor.to(dtype).flatten(-2)

    def log_volume(self, real: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
        r"""For factors :math:`\prod_{i>j} (1 - \sum_{k<j} L_{ik}^2)^{1/2}`, for matrices times
        :math:`\prod_j L_{jj}^{p - j}`.
        """
        partial = _lower(real, self.size, -1)
        log_left = self._left(partial).clamp_min(TINY).log() / 2
        rows, columns = torch.tril_indices(self.size, self.size, offset=-1)
        volume = log_left[..., rows, columns].sum(-1)
        if self.cholesky:
            return volume
        powers = torch.arange(self.size - 1, -1, -1, device=real.device)
        return volume + (log_left.diagonal(dim1=-2, dim2=-1) * powers).sum(-1)

    def _left(self, partial: Tensor) -> Tensor:
        """What the entries before each one have left of the square of a row, ``(..., p, p)``."""
        return torch.nn.functional.pad((1 - partial.square()).cumprod(-1), (1, 0), value=1.0)[..., :-1]


def _cholesky(matrix: Float[Tensor, "*batch p p"]) -> Float[Tensor, "*batch p p"]:
    """The Cholesky factor; of a matrix that rounding has made indefinite, that of the nearest definite one."""
    matrix = (matrix + matrix.mT) / 2
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if not failed.any():
        return factor
    values, vectors = torch.linalg.eigh(matrix)
    values = torch.maximum(values, FLATTEST**2 * values[..., -1:].clamp_min(TINY))
    near = torch.linalg.cholesky_ex(vectors * values.unsqueeze(-2) @ vectors.mT)[0]
    return torch.where((failed != 0)[..., None, None], near, factor)


def _lower(entries: Tensor, size: int, offset: int) -> Tensor:
    """A lower triangular matrix of its entries, row by row."""
    rows, columns = torch.tril_indices(size, size, offset=offset)
    matrix = entries.new_zeros(*entries.shape[:-1], size, size)
    matrix[..., rows, columns] = entries
    return matrix


def _square(factor: Tensor) -> Tensor:
    """The product with the transpose, symmetric to the last digit."""
    product = factor @ factor.mT
    return (product + product.mT) / 2


def _unit_diagonal(matrix: Tensor) -> Tensor:
    return matrix - matrix.diagonal(dim1=-2, dim2=-1).diag_embed() + torch.eye(matrix.shape[-1]).to(matrix)
