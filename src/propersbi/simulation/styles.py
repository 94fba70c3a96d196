"""How a simulator is called: one parameter at a time or in batches, with NumPy or torch, with a vector or by name."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from propersbi.layouts import Layout
from propersbi.simulation.calls import Argument, call, is_tensor, parameters
from propersbi.simulation.results import ResultError, Values, format_theta, read_result
from propersbi.types import Array, Simulator

__all__ = ["Style", "check_rows", "convert", "invoke"]


@dataclass(frozen=True)
class Style:
    """How a simulator is called and what it returns.

    Arguments:
        batched: Whether it takes rows of parameters rather than one at a time.
        library: What it takes, ``"numpy"`` or ``"torch"``; ``None`` is whatever the prior gives.
        arguments: The parameters it takes by name, with the number of their values; ``None`` is one vector.
        x_shape: The shape of its data for one parameter, if known.
        x_names: The names of its data, if known.
        layout: The parts of its data, if it gives several.
    """

    batched: bool = True
    library: str | None = None
    arguments: tuple[Argument, ...] | None = None
    x_shape: tuple[int, ...] | None = None
    x_names: tuple[str, ...] | None = None
    layout: Layout | None = None

    def with_data(self, values: Values) -> Style:
        """The same with the shape and the names of data that were returned."""
        shape = values.numbers.shape[1:] if self.batched else values.numbers.shape
        return replace(self, x_shape=shape or (1,), x_names=values.names, layout=values.layout)

    def __str__(self) -> str:
        library = {None: "", "numpy": ", as NumPy arrays", "torch": ", as torch tensors"}[self.library]
        by_name = "" if self.arguments is None else ", by name"
        return f"{'batches of theta' if self.batched else 'one theta at a time'}{library}{by_name}"


def invoke(simulator: Simulator, style: Style, theta: Array, rng: np.random.Generator) -> Values:
    """Call a simulator with one parameter ``(*event)`` or, in batches, with rows ``(n, *event)``.

    >>> invoke(lambda a, b: a + b, Style(False, arguments=(("a", 1), ("b", 2))), np.ones(3), np.random.default_rng(0))
    Values(numbers=array([2., 2.]), names=None, in_torch=False, layout=None)
    """
    given = convert(theta, style.library)
    if style.arguments is None:
        result = call(simulator, given, rng)
    else:
        keywords = _split(given, style.arguments, style.batched)
        result = simulator(**keywords, **({"rng": rng} if "rng" in parameters(simulator) else {}))
    try:
        return read_result(result, batched=style.batched, order=style.x_names)
    except ResultError as error:
        raise ResultError(f"{error} at theta = {_first(theta, style)}.") from error.__cause__


def check_rows(values: Values, theta: Array, style: Style) -> np.ndarray:
    """The data with one row for each of ``theta (n, *event)``, or as one row if the simulator takes one at a time.

    There is at least one event axis.
    """
    x, n = values.numbers, len(theta) if style.batched else 1
    if not style.batched:
        x = x[None]
    elif n == 1 and x.shape == style.x_shape and len(x) != 1:
        x = x[None]  # a simulator may squeeze
    if x.ndim == 0 or len(x) != n or x.size == 0:
        expected = f"x of shape ({n}, ...) for {n} parameters" if style.batched else "at least one number"
        shape = x.shape if style.batched else x.shape[1:]
        raise ResultError(f"The simulator must return {expected}, got {shape} at theta = {_first(theta, style)}.")
    x = x.reshape(n, 1) if x.ndim == 1 else x
    if style.x_shape is not None and x.shape[1:] != style.x_shape:
        shapes = f"{style.x_shape} and {x.shape[1:]}"
        raise ResultError(f"The simulator returned x of shapes {shapes}, the latter at theta = {_first(theta, style)}.")
    return x


def _first(theta: Array, style: Style) -> str:
    if not style.batched:
        return format_theta(theta)
    return format_theta(theta[0]) + (" or a later row of its chunk" if len(theta) > 1 else "")


def convert(theta: Array, library: str | None) -> Array:
    """A copy, since the simulator may write into its argument; for NumPy in double precision, as its users expect."""
    if library == "numpy" and is_tensor(theta):
        theta = theta.detach().cpu().numpy()
        return theta.astype(np.float64 if theta.dtype.kind == "f" else theta.dtype)
    if library == "torch" and not is_tensor(theta):
        torch = sys.modules["torch"]
        return torch.as_tensor(np.array(theta), dtype=torch.get_default_dtype())
    return theta.clone() if is_tensor(theta) else np.array(theta)


def _split(theta: Array, arguments: tuple[Argument, ...], batched: bool) -> dict[str, Any]:
    """Parameters by name: columns of a batch; numbers or vectors of one parameter."""
    columns = theta.reshape(len(theta), -1) if batched else theta.reshape(1, -1)
    keywords: dict[str, Any] = {}
    start = 0
    for name, size in arguments:
        part = columns[:, start] if size == 1 else columns[:, start : start + size]
        part = part if batched else part[0]
        keywords[name] = part.item() if isinstance(part, np.generic) else part
        start += size
    return keywords
