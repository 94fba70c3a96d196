"""Benchmark tasks: problems with ten observations and, where one exists, a sampler of the true posterior.

Tasks are NumPy only, so that a simulation worker need not load torch, and each is imported when it is asked for.

>>> from propersbi import tasks
>>> tasks.names()  # doctest: +NORMALIZE_WHITESPACE
('bernoulli_glm', 'bernoulli_glm_raw', 'camera', 'gaussian_linear', 'gaussian_linear_uniform', 'gaussian_mixture',
 'lotka_volterra', 'shallow_water', 'sir', 'slcp', 'slcp_distractors', 'two_moons')
>>> tasks.get("two_moons").observation(1)
array([-0.6396706 ,  0.16234657])
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from propersbi.types import InputError

if TYPE_CHECKING:
    from propersbi.tasks.task import Task

__all__ = ["get", "names"]

_NAMES = (
    "bernoulli_glm",
    "bernoulli_glm_raw",
    "camera",
    "gaussian_linear",
    "gaussian_linear_uniform",
    "gaussian_mixture",
    "lotka_volterra",
    "shallow_water",
    "sir",
    "slcp",
    "slcp_distractors",
    "two_moons",
)

_SETS = ("slcp",)  # tasks whose data are exchangeable trials


def names() -> tuple[str, ...]:
    """The names of all tasks, in alphabetical order; each is a module of this package that holds a ``TASK``.

    >>> "slcp" in names()
    True
    """
    return _NAMES


def get(name: str, *, exchangeable: bool = False) -> Task:
    """The task of this name; with ``exchangeable``, data that are a set of trials come as one.

    ``"camera:FOLDER"`` is the camera with images from idx files in a folder, as those of MNIST and EMNIST.

    >>> get("slcp", exchangeable=True).x_shape
    (4, 2)
    >>> get("slcp").description
    'Simple likelihood, complex posterior: four Gaussian points in the plane, five parameters, four modes'
    >>> get("twomoons")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    propersbi.types.InputError: There is no task 'twomoons'; did you mean 'two_moons'? There are: ...
    """
    if not isinstance(name, str) or not isinstance(exchangeable, bool):
        raise InputError(
            f"A task is named by text, and 'exchangeable' or not, got {name!r:.80} and {exchangeable!r:.80}."
        )
    name, _, images = name.partition(":")
    if name not in _NAMES:
        nearest = get_close_matches(str(name).lower(), _NAMES, n=1)
        hint = f"; did you mean '{nearest[0]}'? There are" if nearest else "; there are"
        raise InputError(f"There is no task '{name}'{hint}: {', '.join(_NAMES)}.")
    module = import_module(f"{__name__}.{name}")
    if images:
        if name != "camera":
            raise InputError(f"Only the task 'camera' takes images, not '{name}'.")
        with_images: Task = module.make_task(images)
        return with_images
    if exchangeable and name not in _SETS:
        raise InputError(f"The data of '{name}' are no set of trials; those of {', '.join(_SETS)} are.")
    task: Task = module.EXCHANGEABLE if exchangeable else module.TASK
    return task
