"""The posterior predictive check: data simulated from posterior draws, beside the observed ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from propersbi.simulation.simulations import simulate
from propersbi.types import InputError, Simulator

__all__ = ["View", "predict"]

PREDICTIVE_DATA = 200  # simulations

View = Callable[[np.ndarray], np.ndarray]
Parts = tuple[dict[str, float], dict[str, np.ndarray], list[str]]


def predict(
    samples: np.ndarray,
    x_o: np.ndarray,
    simulator: Simulator,
    names: Sequence[str],
    *,
    seed: int = 0,
    view: View | None = None,
    **simulation: Any,
) -> Parts:
    """Simulate from posterior draws; whatever the simulator does, no error leaves this function.

    Arguments:
        samples: Posterior draws ``(k, *event)``.
        x_o: The observation.
        simulator: As for :func:`propersbi.simulate`, in batches or one parameter at a time, perhaps by name.
        names: Of the parameters.
        seed: Of the choice of draws and of the simulator.
        view: What to show of data that people cannot read as they are.
        **simulation: How the simulator is called, where that is not to be found out.

    Returns:
        Scores, arrays and notes: the share of observed values inside the central 98 % of those simulated, the data,
        and what could not be done.
    """
    options = {name: value for name, value in simulation.items() if value is not None}
    options |= {"seed": seed, "chunk_size": PREDICTIVE_DATA, "progress": False, "parameter_names": list(names)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = simulate(samples, simulator, PREDICTIVE_DATA, **options)
        x = np.asarray(done.x)
        if x.shape[1:] != x_o.shape:
            raise InputError(f"the simulator gave data of shape {x.shape[1:]}, the observation has {x_o.shape}")
        shown = {"predictive": x} if view is None else {"predictive": view(x), "viewed": view(x_o[None])[0]}
    except Exception as error:  # of any kind: it is the user's own code
        return {}, {}, [f"There is no posterior predictive check: {_reason(error)}."]
    low, high = np.quantile(x, [0.01, 0.99], axis=0)
    share = float(((low <= x_o) & (x_o <= high)).mean())
    count = f"{done.invalid} of {PREDICTIVE_DATA}"
    notes = [f"{count} data simulated from the posterior failed or were not finite."] if done.invalid else []
    return {"predictive": share}, shown, notes


def _reason(error: Exception) -> str:
    """The error in words; that of the simulator itself, where it is known."""
    if isinstance(error, InputError):
        return str(error).rstrip(".")
    first = error.__cause__ or error
    return f"the simulator failed ({type(first).__name__}: {first})".replace("\n", " ")
