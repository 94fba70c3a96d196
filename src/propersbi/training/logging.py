"""Loggers: where a training reports its loss, validation score and learning rate while it runs.

A logger has ``log_metrics(metrics, step)``, as those of Lightning Fabric (``CSVLogger``, ``TensorBoardLogger``) and the
module ``mlflow`` do, or is a function of the same: ``lambda metrics, step: wandb.log(metrics, step=step)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from propersbi.types import InputError

__all__ = ["LogFunction", "Logger", "MetricsLogger", "log_function", "prefixed"]


@runtime_checkable
class MetricsLogger(Protocol):
    """Anything that takes numbers by name, and the step they belong to."""

    def log_metrics(self, metrics: dict[str, float], step: int) -> Any: ...


@runtime_checkable
class _Buffered(Protocol):
    """A logger that keeps numbers back until it is asked to write them, as Fabric's do."""

    def save(self) -> Any: ...


LogFunction = Callable[[Mapping[str, float], int], Any]
Logger = MetricsLogger | LogFunction


def log_function(logger: Logger | None) -> LogFunction:
    """What to call with the metrics of a step; without a logger, it does nothing.

    >>> seen = []
    >>> log_function(lambda metrics, step: seen.append((step, dict(metrics))))({"loss": 0.5}, 100)
    >>> seen
    [(100, {'loss': 0.5})]
    """
    if logger is None:
        return lambda *_: None
    if isinstance(logger, MetricsLogger):
        return lambda metrics, step: _log(logger, metrics, step)
    if callable(logger):
        return logger
    raise InputError(f"'logger' must have a method log_metrics(metrics, step) or be a function, got {logger!r:.80}.")


def prefixed(logger: Logger | None, prefix: str) -> Logger | None:
    """The same logger, with a word in front of the names of all numbers.

    >>> shown = prefixed(lambda metrics, step: print(step, metrics), "member 2/")
    >>> log_function(shown)({"loss": 0.5}, 100)
    100 {'member 2/loss': 0.5}
    """
    if logger is None:
        return None
    log = log_function(logger)
    return lambda metrics, step: log({f"{prefix}{name}": value for name, value in metrics.items()}, step)


def _log(logger: MetricsLogger, metrics: Mapping[str, float], step: int) -> None:
    logger.log_metrics(dict(metrics), step)
    if isinstance(logger, _Buffered):
        logger.save()
