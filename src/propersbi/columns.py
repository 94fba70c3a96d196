r"""What the distribution of a column asks for: logarithms, or a finer view where its values are dense.

A column of positive numbers is better learnt as logarithms where a log-normal distribution fits clearly better than a
normal one: the mean log-likelihoods differ by

.. math:: \log \frac{\mathrm{sd}(v)}{\mathrm{sd}(\log v)} - \overline{\log v}.

A column is uneven if a tenth of its values lie much closer together than on average, such as counts of which many are
zero or small.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from propersbi.samplers import Box, Support

__all__ = ["logarithms", "skewed_columns", "uneven_columns"]

LOG_REASON = "positive, and nearer to a normal distribution in logarithms"
LOG_GAIN = 0.1  # of the mean log-likelihood for which logarithms are taken
UNEVEN = 4  # times denser than on average is a tenth of the values of an uneven column
FEW_VALUES = 50  # of a column that are different, up to which it is a category or a small count


def logarithms(
    values: Float[Tensor, "n columns"], support: Support | None = None, integers: Sequence[int] = ()
) -> tuple[tuple[int, ...], str]:
    """Which columns to learn as logarithms, and why; of parameters those on half-lines that are no whole numbers.

    Arguments:
        values: Rows of data or parameters.
        support: The support of parameters.
        integers: Columns of whole numbers.
    """
    found = [i for i in skewed_columns(values) if i not in integers]
    if support is not None:
        if not isinstance(support, Box):
            return (), ""
        bounds = support.bounds(values.shape[1])
        open_ended = (bounds.lower >= 0) & bounds.lower.isfinite() & bounds.upper.isinf()
        found = [i for i in found if open_ended[i]]
    return tuple(found), LOG_REASON if found else ""


def skewed_columns(values: Float[Tensor, "n columns"]) -> list[int]:
    """Columns of positive numbers whose logarithms a normal distribution fits clearly better than themselves.

    >>> skewed_columns(torch.stack([torch.linspace(-2, 2, 99).exp(), torch.linspace(1, 2, 99)], 1))
    [0]
    """
    positive = (values > 0).all(0)
    logs = values.clamp_min(torch.finfo(torch.float64).tiny).log()
    gain = (values.std(0) / logs.std(0)).log() - logs.mean(0)
    return torch.nonzero(positive & (gain > LOG_GAIN)).flatten().tolist()


def uneven_columns(values: Float[Tensor, "n columns"]) -> list[int]:
    """Columns of many different values, a tenth of which are much denser than the others.

    >>> dense_near_zero = torch.linspace(0, 1, 999) ** 6
    >>> uneven_columns(torch.stack([dense_near_zero, torch.linspace(0, 1, 999)], 1))
    [0]
    """
    quantiles = np.quantile(values.numpy(), np.linspace(0.05, 0.95, 10), axis=0)
    uneven = UNEVEN * np.diff(quantiles, axis=0).min(0) < (quantiles[-1] - quantiles[0]) / (len(quantiles) - 1)
    return [int(i) for i in np.flatnonzero(uneven) if len(values[:, i].unique()) > FEW_VALUES]
