"""What the laws share."""

import math

import pytest
import torch


def every(cases):
    """Run a law on every case of a table."""
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())


def draws(m, n, d, seed=0, scale=1.0, shift=0.0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(m, n, d, generator=generator, dtype=dtype) + shift


def z_score(differences):
    """How many standard errors the mean of some differences lies from zero."""
    return (differences.mean() / (differences.std() / math.sqrt(len(differences)))).item()
