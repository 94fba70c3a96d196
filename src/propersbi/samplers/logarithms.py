r"""Which columns are better learnt as logarithms.

A column of positive numbers is one where a log-normal distribution fits clearly better than a normal one: the mean
log-likelihoods differ by

.. math:: \log \frac{\mathrm{sd}(v)}{\mathrm{sd}(\log v)} - \overline{\log v}.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["skewed_columns"]

LOG_GAIN = 0.1  # of the mean log-likelihood for which logarithms are taken


def skewed_columns(values: Float[Tensor, "n columns"]) -> list[int]:
    """Columns of positive numbers whose logarithms a normal distribution fits clearly better than themselves.

    >>> skewed_columns(torch.stack([torch.linspace(-2, 2, 99).exp(), torch.linspace(1, 2, 99)], 1))
    [0]
    """
    positive = (values > 0).all(0)
    logs = values.clamp_min(torch.finfo(torch.float64).tiny).log()
    gain = (values.std(0) / logs.std(0)).log() - logs.mean(0)
    return torch.nonzero(positive & (gain > LOG_GAIN)).flatten().tolist()
