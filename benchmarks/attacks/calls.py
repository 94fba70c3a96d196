"""Random calls of everything public: one or two arguments of a call that works are replaced by nonsense.

A call gives a result, or an ``InputError`` (for a simulator that fails, a ``SimulationError``), or Python's own
``TypeError`` for a call that does not fit the signature. Everything else is a defect.
"""

from __future__ import annotations

import math
import random
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributions import Normal, Uniform

import propersbi as ps
from benchmarks.attacks.files import Outcome, limited
from propersbi.types import MAX_MESSAGE, InputError

__all__ = ["CALLS", "WITHOUT_CALLS", "attack_calls"]

LONGEST = 20
FAST: dict[str, Any] = {
    "max_steps": 2,
    "validate_every": 2,
    "refinement_steps": 1,
    "batch_size": 16,
    "time_limit": 2.0,
    "progress": False,
}


def nonsense(rng: random.Random) -> Any:
    """Something that hardly any argument means."""
    chosen = rng.randrange(len(PLAIN) + len(MADE))
    return PLAIN[chosen] if chosen < len(PLAIN) else MADE[chosen - len(PLAIN)]()


class Odd:
    """An object that is nothing."""

    def __repr__(self) -> str:
        return "Odd" * 500


PLAIN: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3.5, -0.5, math.nan, math.inf, -math.inf, 10**30, -(10**30), 1e300, 1j,
    "", "x", "x" * 5000, "\ud800", b"bytes", [], {}, (), set(), [1], [[1], [1, 2]], ["a"], {"a": 1}, [None], Odd(), Odd,
    Path("nowhere"), (0, -1), (10**12,), (1.5,), range(3), abs, divmod,
)  # fmt: skip

MADE: tuple[Callable[[], Any], ...] = (
    lambda: np.array([]),
    lambda: np.array(1.0),
    lambda: np.array(["a", "b"]),
    lambda: np.array([None, 1]),
    lambda: np.full((4, 2), np.nan),
    lambda: np.zeros((0, 2)),
    lambda: np.zeros((3, 0)),
    lambda: np.zeros((5, 2), complex),
    lambda: np.zeros((5, 2), ">f8"),
    lambda: np.zeros((5, 2), np.longdouble),
    lambda: np.zeros((7, 3, 2)),
    lambda: np.ma.masked_array([[1.0, 2.0]], [[True, False]]),
    lambda: torch.zeros(5, 2, requires_grad=True),
    lambda: torch.zeros(0),
    lambda: torch.zeros(2, 3, 4, dtype=torch.int8),
    lambda: Normal(0.0, 1.0),
)


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


def _metric(name: str) -> Call:
    return getattr(ps.metrics, name), {"samples": SAMPLES, "theta": THETA}


def _calls() -> dict[str, Call]:
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
    for name in ps.metrics.__all__:
        if name not in ("c2st", "calibration") and callable(getattr(ps.metrics, name)):
            calls[f"metrics.{name}"] = _metric(name)
    return calls


WITHOUT_CALLS = {
    "diagnostics",
    "metrics",
    "networks",
    "plots",
    "samplers",
    "scoring",
    "sequential",
    "simulation",
    "tasks",
    "training",
    "calibration",
    "kernels",
    "Comparison",
    "Simulations",
    "SimulationError",
    "InputError",
    "Typicality",
    "UnlikeSimulations",
    "Dask",
    "MPI",
    "Ray",
    "fit_online",
}  # modules, results and errors, which nobody calls, and what starts a cluster or workers
"""Public names without a call here."""

CALLS = _calls


def attack_calls(count: int, seed: int = 0, only: str | None = None) -> dict[str, Outcome]:
    """``count`` calls in all."""
    outcomes: dict[str, Outcome] = {}
    calls = {name: call for name, call in _calls().items() if only is None or name in only.split(",")}
    heavy = {"fit": 6, "simulate": 6, "Posterior.sample": 3}
    share = max(1, count // sum(heavy.get(name, 1) for name in calls))
    for name, (function, usual) in calls.items():
        outcomes[name] = Outcome()
        for i in range(share * heavy.get(name, 1)):
            rng = random.Random(f"{seed} {name} {i}")
            _attempt(outcomes[name], name, function, _changed(usual, rng), i)
    return outcomes


def _changed(usual: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    given = dict(usual)
    if given:
        for key in rng.sample(sorted(given), min(len(given), rng.choice([1, 1, 1, 2]))):
            given[key] = nonsense(rng)
    if rng.random() < 0.05 or not given:
        given[rng.choice(["nothing", "theta", "n", "rate"])] = nonsense(rng)
    return given


def _attempt(outcome: Outcome, name: str, function: Callable[..., Any], given: dict[str, Any], number: int) -> None:
    outcome.count += 1
    text = f"{name} number {number}"
    try:
        with limited(LONGEST), warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")
            if name == "Store" and given.get("folder") is None:
                given["folder"] = folder
            function(**given)
    except (InputError, ps.SimulationError) as error:
        outcome.refused += 1
        if len(str(error)) > 2 * MAX_MESSAGE:
            outcome.broken.append(f"{text}: a message of {len(str(error))} characters")
    except TypeError as error:
        if _is_of_the_signature(error):
            outcome.refused += 1
        else:
            outcome.broken.append(_described(text, error))
    except Exception as error:
        outcome.broken.append(_described(text, error))


def _is_of_the_signature(error: TypeError) -> bool:
    """Whether Python refused the call itself."""
    return "unexpected keyword argument" in str(error) or ("missing" in str(error) and "argument" in str(error))


def _described(text: str, error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in last if "propersbi" in frame.filename] or list(last)
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno}"
    return f"{text}: {type(error).__name__} at {where}: {' '.join(str(error).split())[:100]}"
