"""Calls of everything public that work: what is attacked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch.distributions import Normal, Uniform

import propersbi as ps

__all__ = ["WITHOUT_CALLS", "public_calls"]

FAST: dict[str, Any] = {
    "max_steps": 2,
    "validate_every": 2,
    "refinement_steps": 1,
    "batch_size": 16,
    "time_limit": 2.0,
    "progress": False,
}


def _data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(60, 2))
    return theta, theta + rng.normal(size=(60, 2))


THETA, X = _data()
SAMPLES = np.random.default_rng(1).normal(size=(20, 60, 2))
PRIOR = [Normal(0.0, 1.0), Uniform(0.0, 1.0)]


def _noisy(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return theta + rng.normal(size=theta.shape)


def _posterior() -> ps.Posterior:
    from propersbi.networks import MLPGenerator
    from propersbi.samplers import Standardize, Standardized

    torch.manual_seed(0)
    return ps.Posterior(Standardized(MLPGenerator((2,), (2,), width=4), Standardize((2,)), Standardize((2,))))


def _sampler() -> Any:
    return _posterior().sampler


Call = tuple[Callable[..., Any], Mapping[str, Any]]


def _metrics() -> dict[str, Call]:
    """Those that compare draws with true values, or with other draws."""
    known: dict[str, Any] = {
        "samples": SAMPLES,
        "theta": THETA,
        "prior_samples": THETA,
        "rng": np.random.default_rng(0),
        "ranks": np.arange(60).reshape(60, 1) % 20,
        "num_samples": 20,
        "n": 60,
        "bins": 5,
        "alphas": np.linspace(0.1, 0.9, 5),
        "points": THETA,
    }
    calls: dict[str, Call] = {}
    for place in (ps.metrics, ps.calibration):
        for name in place.__all__:
            function = getattr(place, name)
            names = set(inspect.signature(function).parameters)
            given = {key: value for key, value in known.items() if key in names}
            given |= {"samples": THETA, "reference": X} if "reference" in names else {}
            given |= {"points": 5, "repeats": 10} if name == "ecdf_band" else {}
            calls[f"{place.__name__.split('.')[-1]}.{name}"] = function, given
    return calls


def _supports() -> dict[str, Call]:
    """Supports and kernels, by their constructors."""
    supports: dict[str, dict[str, Any]] = {
        "Integers": {"lower": 0, "upper": 5},
        "Categories": {"categories": 3},
        "Counts": {"size": 3, "total": 5},
        "Ordered": {"size": 3},
        "Simplex": {"size": 3},
        "PositiveDefinite": {"size": 2},
        "Correlation": {"size": 2},
        "Standardize": {"shape": (2,)},
        "support_of": {"prior": PRIOR},
    }
    calls: dict[str, Call] = {
        f"samplers.{name}": (getattr(ps.samplers, name), given) for name, given in supports.items()
    }
    return calls | {f"kernels.{name}": (getattr(ps.kernels, name), {}) for name in ps.kernels.__all__}


def public_calls() -> dict[str, Call]:
    """A call that works for everything public: its function and its arguments."""
    posterior = _posterior()
    torch_samples, torch_theta = torch.tensor(SAMPLES), torch.tensor(THETA)
    rules: dict[str, dict[str, Any]] = {
        "EnergyScore": {"beta": 1.0, "fair": True},
        "KernelScore": {"kernel": ps.kernels.Gaussian(1.0), "fair": True},
        "VariogramScore": {"p": 0.5},
        "SlicedEnergyScore": {},
        "Scaled": {"rule": ps.EnergyScore(), "factor": 2.0},
        "Patched": {"rule": ps.EnergyScore(), "size": 1, "step": 1},
        "Derived": {"rule": ps.EnergyScore(), "function": lambda theta: theta},
    }
    calls: dict[str, Call] = {
        "simulate": (
            ps.simulate,
            {
                "prior": PRIOR,
                "simulator": _noisy,
                "n": 20,
                "seed": 0,
                "path": None,
                "group": "train",
                "chunk_size": 10,
                "workers": 1,
                "batched": True,
                "half": False,
                "on_error": "record",
                "max_failed": 0.2,
                "timeout": None,
                "parameter_names": ["a", "b"],
                "force": False,
                "progress": False,
            },
        ),
        "fit": (
            ps.fit,
            {
                "theta": THETA,
                "x": X,
                "prior": PRIOR,
                "recipe": None,
                "start": None,
                "weight": np.ones(60),
                "noise": None,
                "parameter_names": ["a", "b"],
                "folder": None,
                "seed": 0,
                "device": "cpu",
                "draws": 3,
                "learning_rate": 1e-3,
                "support": None,
                "discrete": None,
                "ensemble": 1,
                "clip": 1.0,
                "betas": (0.9, 0.99),
                "warmup": 1,
                "weight_decay": 0.0,
                "average": 0.9,
                "rule": ps.EnergyScore(),
                "validation_fraction": 0.1,
                "tail": None,
                **FAST,
            },
        ),
        "recipe": (
            ps.recipe,
            {"theta": THETA, "x": X, "prior": PRIOR, "draws": 3, "max_steps": 3, "rule": ps.EnergyScore()},
        ),
        "diagnose": (
            ps.diagnose,
            {
                "posterior": posterior,
                "theta": THETA,
                "x": X,
                "num_samples": 20,
                "seed": 0,
                "observation": X[0],
                "progress": False,
            },
        ),
        "compare": (
            ps.compare,
            {
                "samplers": {"a": posterior, "b": lambda m, x: np.zeros((m, len(x), 2))},
                "theta": THETA,
                "x": X,
                "num_samples": 10,
                "seed": 0,
            },
        ),
        "fit_sequential": (
            ps.fit_sequential,
            {
                "prior": PRIOR,
                "simulator": _noisy,
                "x_o": X[0],
                "simulations": 40,
                "rounds": 1,
                "correction": ps.Truncated(),
                "seed": 0,
                "folder": None,
                **FAST,
            },
        ),
        "fit_online": (
            ps.fit_online,
            {
                "prior": PRIOR,
                "simulator": _noisy,
                "simulations": 60,
                "workers": 0,
                "batched": True,
                "parameter_names": ["a", "b"],
                "folder": None,
                "seed": 0,
                "device": "cpu",
                "draws": 3,
                **FAST,
            },
        ),
        "run": (ps.run, {"problem": "nothing.py", "observation": None, "folder": None, "simulations": 20, "seed": 0}),
        "report": (ps.report, {"folder": "nowhere"}),
        "Problem": (
            ps.Problem,
            {
                "prior": PRIOR,
                "simulator": _noisy,
                "parameter_names": ["a", "b"],
                "support": None,
                "x_o": X[0],
                "name": "p",
            },
        ),
        "Settings": (ps.Settings, {"simulations": 10, "test": 5, "num_samples": 10}),
        "Noise": (ps.Noise, {"draw": np.add}),
        "Store": (ps.Store.create_or_open, {"folder": None, "seed": 0, "chunk_size": 5}),
        "Posterior": (ps.Posterior, {"sampler": _sampler(), "parameter_names": ["a", "b"], "x_names": None}),
        "Posterior.sample": (
            posterior.sample,
            {"sample_shape": (5,), "x": X[0], "refinement_steps": None, "seed": 0, "show_progress_bars": False},
        ),
        "Posterior.sample_batched": (
            posterior.sample_batched,
            {"sample_shape": (5,), "x": X, "refinement_steps": None, "seed": 0, "show_progress_bars": False},
        ),
        "Posterior.log_prob": (posterior.log_prob, {"theta": THETA, "x": X[0]}),
        "Posterior.summary": (posterior.summary, {"x": X[0], "num_samples": 10, "seed": 0}),
        "Posterior.map": (posterior.map, {"x": X[0], "num_samples": 10, "seed": 0}),
        "Posterior.set_default_x": (posterior.set_default_x, {"x": X[0]}),
        "Posterior.load": (ps.Posterior.load, {"folder": "nowhere"}),
        "Diagnostics": (ps.Diagnostics.load, {"folder": "nowhere"}),
        "Recipe": (ps.Recipe.from_json, {"data": ps.recipe(THETA, X).to_json()}),
        "Recipe.change": (
            ps.recipe(THETA, X).change,
            {
                "draws": 3,
                "max_steps": 5,
                "batch_size": 7,
                "support": None,
                "tail": None,
                "ensemble": 2,
                "refinement_steps": 2,
            },
        ),
        "TrainConfig": (
            ps.TrainConfig,
            {
                "max_steps": 5,
                "learning_rate": 0.1,
                "warmup": 1,
                "weight_decay": 0.0,
                "betas": (0.9, 0.99),
                "clip": 1.0,
                "average": 0.9,
                "validate_every": 2,
                "keep": "best",
                "keep_within": 1.0,
                "time_limit": None,
                "checkpoint_every": 1.0,
                "devices": 1,
                "threads": 1,
            },
        ),
        "Box": (ps.Box, {"lower": 0.0, "upper": 1.0}),
        "Metropolis": (ps.Metropolis, {}),
        "Rejection": (ps.Rejection, {}),
        "Truncated": (ps.Truncated, {}),
        "ImportanceWeights": (ps.ImportanceWeights, {}),
        "Uncorrected": (ps.Uncorrected, {}),
        "CorrectedLatent": (ps.CorrectedLatent, {}),
        "Joblib": (ps.Joblib, {"workers": 1, "backend": "loky"}),
        "Serial": (ps.Serial, {}),
        "Adversarial": (
            ps.Adversarial,
            {
                "sampler": _sampler(),
                "draws": 1,
                "critic_steps": 1,
                "sampler_steps": 1,
                "unrolled": 0,
                "unroll_rate": 0.1,
                "validation_draws": 5,
            },
        ),
        "MaximumLikelihood": (ps.MaximumLikelihood, {"sampler": _sampler()}),
        "ScoreMinimization": (ps.ScoreMinimization, {"sampler": _sampler(), "rule": ps.EnergyScore(), "draws": 3}),
        "Patience": (ps.Patience, {"validations": 3, "overfitting": 2.0, "overfitting_validations": 2}),
        "FirstRise": (ps.FirstRise, {"start": 0}),
        "Evenness": (ps.Evenness, {"tolerance": 0.1, "validations": 3}),
        "TimeLimit": (ps.TimeLimit, {"seconds": 3.0}),
        "Missing": (ps.Missing, {"rate": 0.3}),
        **{name: (getattr(ps, name), options) for name, options in rules.items()},
        "EnergyScore()": (ps.EnergyScore(), {"samples": torch_samples, "theta": torch_theta}),
        "KernelScore()": (ps.KernelScore(ps.kernels.Gaussian(1.0)), {"samples": torch_samples, "theta": torch_theta}),
    }
    calls["tasks.get"] = ps.tasks.get, {"name": "two_moons"}
    calls |= _metrics() | _supports()
    # Whatever else an argument may be: all arguments of each function are attacked.
    return {name: (function, {**_defaults(function), **given}) for name, (function, given) in calls.items()}


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """The arguments that need not be given."""
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


WITHOUT_CALLS = {
    "diagnostics",
    "networks",
    "plots",
    "scoring",
    "sequential",
    "simulation",
    "training",
    "Comparison",
    "Simulations",
    "SimulationError",
    "InputError",
    "Typicality",
    "UnlikeSimulations",
    "Dask",
    "MPI",
    "Ray",
}  # modules, results and errors, which nobody calls, and what starts a cluster
"""Public names without a call here."""
