"""The peers, run here: sbi's neural posterior estimation (spline flow) and neural posterior score estimation.

Both are the methods of the ``sbi`` package with its own defaults: ``pip install propersbi[peers]``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from propersbi.tasks.priors import Gaussian, LogNormal

__all__ = ["PEERS", "Trained", "torch_prior"]

Trained = tuple[Callable[[np.ndarray, int], np.ndarray], float, int]
"""A function that draws ``n`` samples for an observation, the seconds of training and the epochs."""


def npe(prior: Any, theta: np.ndarray, x: np.ndarray, seed: int, **options: Any) -> Trained:
    from sbi.inference import NPE

    return _train(NPE(prior=torch_prior(prior), density_estimator="nsf"), theta, x, seed, **options)


def npse(prior: Any, theta: np.ndarray, x: np.ndarray, seed: int, **options: Any) -> Trained:
    from sbi.inference import NPSE

    return _train(NPSE(prior=torch_prior(prior), sde_type="ve"), theta, x, seed, **options)


PEERS = {"sbi NPE": npe, "sbi NPSE": npse}


def _train(method: Any, theta: np.ndarray, x: np.ndarray, seed: int, **options: Any) -> Trained:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    method.append_simulations(torch.as_tensor(theta).float(), torch.as_tensor(x).float())
    started = time.perf_counter()
    method.train(**options)
    seconds = time.perf_counter() - started
    posterior = method.build_posterior()

    def sample(observation: np.ndarray, n: int) -> np.ndarray:
        at = torch.as_tensor(observation).float()
        return np.asarray(posterior.sample((n,), x=at, show_progress_bars=False))

    return sample, seconds, method.summary["epochs_trained"][-1]


def torch_prior(prior: Any) -> Any:
    """A prior of the tasks as the torch distribution that sbi expects."""
    from sbi.utils import BoxUniform

    if isinstance(prior, Gaussian):
        mean, covariance = (torch.as_tensor(value).float() for value in (prior.mean, prior.covariance))
        return torch.distributions.MultivariateNormal(mean, covariance)
    if isinstance(prior, LogNormal):
        loc, scale = (torch.as_tensor(value).float() for value in (prior.loc, prior.scale))
        return torch.distributions.Independent(torch.distributions.LogNormal(loc, scale), 1)
    return BoxUniform(torch.as_tensor(prior.lower).float(), torch.as_tensor(prior.upper).float())
