"""Calls of everything public by hypothesis: one or two arguments of a call that works are replaced by nonsense.

A call gives a result, or an ``InputError`` (for a simulator that fails, a ``SimulationError``), or Python's own
``TypeError`` for a call that does not fit the signature. Everything else is a defect.
"""

from __future__ import annotations

import math
import tempfile
import traceback
import warnings
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.extra.numpy
import numpy as np
import torch
from hypothesis import strategies as st
from torch.distributions import Normal

import propersbi as ps
from benchmarks.attacks.outcome import Outcome, limited
from benchmarks.attacks.public import public_calls
from propersbi.types import MAX_MESSAGE, InputError

__all__ = ["attack_calls"]

LONGEST = 20


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

# Whole numbers are small or absurd: a million simulations are no nonsense.
WHOLE = st.one_of(st.integers(-1000, 9), st.integers(min_value=2**63), st.integers(max_value=-(2**63)))
TYPES = ("f2", "f4", "f8", ">f8", "c16", "i1", "u8", "?", "U3", "S2", "M8[s]")
ARRAYS = st.sampled_from(TYPES).flatmap(
    lambda name: hypothesis.extra.numpy.arrays(name, hypothesis.extra.numpy.array_shapes(min_dims=0, max_side=4))
)
NONSENSE: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(PLAIN),
    st.sampled_from(MADE).map(lambda make: make()),
    WHOLE,
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=8),
    st.lists(st.one_of(WHOLE, st.floats(), st.text(max_size=3)), max_size=4),
    st.dictionaries(st.text(max_size=3), st.one_of(WHOLE, st.floats()), max_size=3),
    st.one_of(st.fractions(), st.decimals(), st.datetimes(), st.complex_numbers()),
    ARRAYS,
    ARRAYS.filter(lambda array: array.dtype.kind in "fiub" and array.dtype.isnative).map(torch.tensor),
)
"""Something that hardly any argument means."""


def attack_calls(count: int, seed: int = 0, only: str | None = None) -> dict[str, Outcome]:
    """``count`` calls in all, or somewhat fewer where there are not so many."""
    outcomes: dict[str, Outcome] = {}
    calls = {name: call for name, call in public_calls().items() if only is None or name in only.split(",")}
    heavy = {
        "fit": 6,
        "simulate": 6,
        "fit_online": 3,
        "fit_sequential": 3,
        "Posterior.sample": 3,
    }
    share = max(1, count // sum(heavy.get(name, 1) for name in calls))
    for name, (function, usual) in calls.items():
        outcomes[name] = Outcome()
        _explore(outcomes[name], name, function, usual, share * heavy.get(name, 1), seed)
    return outcomes


def _explore(
    outcome: Outcome, name: str, function: Callable[..., Any], usual: Mapping[str, Any], count: int, start: int
) -> None:
    """Let hypothesis choose what is nonsense; a defect is noted, and the search goes on."""

    @hypothesis.seed(zlib.crc32(f"{start} {name}".encode()))
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(_changes(sorted(usual)))
    def attempt(changes: dict[str, Any]) -> None:
        _attempt(outcome, name, function, {**usual, **changes}, changes)

    attempt()


@st.composite
def _changes(draw: Any, names: list[str]) -> dict[str, Any]:
    """Some arguments by name, and sometimes one that does not exist."""
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True)) if names else []
    if not names or draw(st.integers(0, 19)) == 19:
        chosen = [*chosen, draw(st.sampled_from(["nothing", "theta", "n", "rate"]))]
    return {name: draw(NONSENSE) for name in chosen}


def _attempt(
    outcome: Outcome, name: str, function: Callable[..., Any], given: dict[str, Any], changes: dict[str, Any]
) -> None:
    outcome.count += 1
    text = f"{name}({', '.join(f'{key}={value!r:.60}' for key, value in changes.items())})"
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
