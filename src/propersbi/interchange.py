"""Draws for other libraries: ArviZ, xarray and pandas. None of them is imported unless it is asked for.

A group of draws becomes one variable for each parameter, by its name; a field, or a vector of more than 40 numbers,
becomes one variable with an axis for each of its own. Both versions of ArviZ have the same groups: ``posterior``,
``posterior_predictive``, ``prior``, ``observed_data``, ``reference`` and, for ``plot_ecdf_pit``, ``prior_sbc``.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from propersbi.types import InputError

__all__ = ["Groups", "arviz_of", "dataframe_of", "write_arviz"]

MAX_VARIABLES = 40  # a longer vector is one variable
NEEDED = "ArviZ is not installed: pip install 'propersbi[arviz]'."


@dataclass
class Groups:
    """Groups of variables with the names of their axes, as ArviZ wants them.

    Arguments:
        parameter_names: One for each number of theta.
        theta_shape: The shape of theta.
        x_names: One for each number of the data, if they have names.
    """

    parameter_names: Sequence[str]
    theta_shape: tuple[int, ...]
    x_names: Sequence[str] | None = None
    data: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    dims: dict[str, list[str]] = field(default_factory=dict)
    coords: dict[str, list[Any]] = field(default_factory=dict)

    def add_draws(self, group: str, theta: np.ndarray) -> None:
        """Draws of the parameters, ``(m, *theta_shape)``, as one chain."""
        flat, names = theta.reshape(len(theta), -1), [name.replace("/", "_") for name in self.parameter_names]
        if len(self.theta_shape) == 1 and len(names) <= MAX_VARIABLES and len(set(names)) == len(names):
            self.data[group] = {name: flat[None, :, j] for j, name in enumerate(names)}
            return
        self.data[group] = {"theta": theta.reshape(1, len(theta), *self.theta_shape)}
        self._name_axes("theta", self.theta_shape, self.parameter_names)

    def add_data(self, group: str, x: np.ndarray, *, draws: bool) -> None:
        """Data: simulated for each draw, ``(m, *x_shape)``, or observed, ``(*x_shape,)``."""
        self.data[group] = {"x": x[None] if draws else x}
        self._name_axes("x", x.shape[1:] if draws else x.shape, self.x_names)

    def _name_axes(self, variable: str, shape: tuple[int, ...], names: Sequence[str] | None) -> None:
        self.dims[variable] = [f"{variable}_dim_{axis}" for axis in range(len(shape))]
        for dim, size in zip(self.dims[variable], shape, strict=True):
            by_name = names is not None and len(shape) == 1 and len(names) == size
            self.coords[dim] = list(names) if by_name and names is not None else list(range(size))


def arviz_of(groups: Groups) -> Any:
    """What the installed ArviZ works with: an ``xarray.DataTree`` from version 1, ``InferenceData`` before."""
    old = _old_arviz()
    if old is not None:
        return _inference_data(old, groups)
    try:
        base = importlib.import_module("arviz_base")
    except ImportError:
        raise InputError(NEEDED) from None
    attributes = {"/": {"inference_library": "propersbi"}}
    return base.from_dict(groups.data, coords=groups.coords, dims=groups.dims, attrs=attributes)


def _old_arviz() -> Any:
    """ArviZ before version 1, if that is what is installed."""
    if importlib.util.find_spec("arviz") is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it announces version 1 when it is imported
        arviz = importlib.import_module("arviz")
    return arviz if int(str(arviz.__version__).partition(".")[0]) < 1 else None


def _inference_data(arviz: Any, groups: Groups) -> Any:
    own = ("reference", "prior_sbc")  # groups that its conventions do not know
    usual = {name: data for name, data in groups.data.items() if name not in own}
    axes = {"coords": groups.coords, "dims": groups.dims}
    result = arviz.from_dict(**usual, **axes, attrs={"inference_library": "propersbi"})
    for name in own:
        if name in groups.data:
            variables = arviz.dict_to_dataset(groups.data[name], **axes)
            result.add_groups({name: variables}, warn_on_custom_groups=False)
    return result


def write_arviz(path: str | Path, content: Any) -> Path:
    """Write what :func:`arviz_of` gave to a ``.nc`` file or a ``.zarr`` folder, as a whole or not at all."""
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name}.tmp{place.suffix}")
    tree = content if isinstance(content, importlib.import_module("xarray").DataTree) else content.to_datatree()
    write = tree.to_netcdf if place.suffix == ".nc" else tree.to_zarr
    options = {"engine": "h5netcdf"} if place.suffix == ".nc" else {}
    _remove(temporary)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # zarr says of text that its format may change
            write(temporary, **options)
        if place.is_dir():
            shutil.rmtree(place)
        temporary.replace(place)
    except (ImportError, ValueError) as error:
        raise InputError(f"'{place}' cannot be written ({error}): pip install 'propersbi[arviz]'.") from None
    finally:
        _remove(temporary)
    return place


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def dataframe_of(draws: np.ndarray, names: Sequence[str]) -> Any:
    """Draws as a ``pandas.DataFrame``: a row for each, a column for each number.

    >>> dataframe_of(np.zeros((5, 2)), ["mu", "sigma"]).columns.tolist()
    ['mu', 'sigma']
    """
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        raise InputError("A DataFrame needs the package pandas: pip install pandas.") from None
    return pandas.DataFrame(draws.reshape(len(draws), math.prod(draws.shape[1:])), columns=list(names))
