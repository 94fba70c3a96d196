"""Whether a group of simulations was filled by this prior and this simulator.

Before the first chunk of a group is computed, some draws from the prior and the data of a few of them are written
beside it, in a random stream of their own: the fingerprint. Whoever continues the group computes them again and
compares, so that rows of two models are never mixed, not even by two processes that start at the same time. A simulator
that gives other data under the same seed is detected by calling it twice, and only its prior is compared.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from propersbi.simulation.chunks import Job
from propersbi.simulation.output import capture
from propersbi.simulation.results import as_floats
from propersbi.simulation.shards import checksum
from propersbi.simulation.store import Store
from propersbi.storage.files import read_bytes, write_with
from propersbi.storage.locks import Owner
from propersbi.types import InputError

__all__ = ["Fingerprint", "check_fingerprint", "compute_fingerprint", "forget_fingerprint"]

DRAWS, ROWS = 32, 2  # draws from the prior, and rows that are simulated
PLACE = 2**32 - 2  # of the random streams, counted down, in the place of the number of a chunk
QUICK = 2.0  # seconds that a comparison may take where nothing else is left to do
TOLERANCE = 1e-4  # relative; other processors and numbers of threads round differently
MAX_BYTES = 1 << 30


class Fingerprint(NamedTuple):
    """Draws from a prior, and the data that a simulator makes of the first of them."""

    theta: np.ndarray
    x: np.ndarray
    seconds: float


@dataclass(frozen=True)
class _Saved:
    """What a file holds."""

    fingerprint: Fingerprint
    owner: Owner | None
    repeatable: bool


def compute_fingerprint(job: Job, index: int = 0) -> Fingerprint:  # noqa: ARG001, executors map over numbers
    """The fingerprint of the prior and the simulator of a job; what fails is NaN, as the first chunk will say."""
    started = time.monotonic()
    theta = x = np.full((1, 1), np.nan, np.float32)
    options = replace(job.source.options, on_error="record", max_failed=1.0)
    job = replace(job, source=replace(job.source, options=options), store=None)
    with warnings.catch_warnings(), capture():
        warnings.simplefilter("ignore")
        try:
            theta = as_floats(job.draw(PLACE, DRAWS)).astype(np.float32)
            # One by one: rows of a batch in which one fails have other random numbers.
            rows = [job.data(job.simulate(PLACE - k, count=1), job.style.x_shape) for k in range(ROWS)]
            x = np.concatenate([row for row in rows if row is not None] or [np.full((1, 1), np.nan, np.float32)])
        except (Exception, SystemExit):
            pass
    return Fingerprint(theta, x.astype(np.float32), time.monotonic() - started)


def check_fingerprint(
    store: Store, group: str, compute: Callable[[], Fingerprint], *, complete: bool, force: bool
) -> None:
    """Refuse to continue a group that another prior or simulator has begun; a new group gets a fingerprint.

    Arguments:
        store: The store.
        group: The group.
        compute: What computes the fingerprint here.
        complete: Whether nothing is left to simulate: then only a quick simulator is called.
        force: Whether to go on nevertheless.
    """
    path = store.folder / group / "fingerprint.safetensors"
    saved, begun = _read(path), store.is_begun(group)
    if saved is None and begun:
        return  # a store of the first version, or one whose fingerprint was damaged
    if saved is not None and complete and saved.fingerprint.seconds > QUICK:
        return
    found = compute()
    if saved is None and _write(path, found, replace=False):
        return
    saved = saved or _read(path)  # of another process that has just begun
    if saved is None or _same(saved, found):
        return
    if _same_prior(saved, found) and not _alike(found.x, compute().x):
        warnings.warn(
            "The simulator gives other data under the same seed: a change of it goes unnoticed.", stacklevel=4
        )
        _write(path, saved.fingerprint, repeatable=False)
        return
    if force or (not begun and saved.owner is not None and saved.owner.is_alive() is False):
        _write(path, found)
        return
    raise InputError(_refusal(store.folder, group, saved, found))


def forget_fingerprint(store: Store, group: str) -> None:
    """Remove the fingerprint of a group without a finished chunk: the model may be mended and begun anew."""
    if not store.is_begun(group):
        (store.folder / group / "fingerprint.safetensors").unlink(missing_ok=True)


def _refusal(folder: Path, group: str, saved: _Saved, found: Fingerprint) -> str:
    if _same_prior(saved, found):
        what = f"for the same theta, x was {_brief(saved.fingerprint.x)} and is {_brief(found.x)}"
    else:
        what = f"a draw from its prior was {_brief(saved.fingerprint.theta)} and is {_brief(found.theta)}"
    return (
        f"Group '{group}' in '{folder}' was simulated by another model: {what}. Delete the folder to simulate anew, "
        "choose another one, or keep its rows with force=True (--force)."
    )


def _brief(rows: np.ndarray) -> str:
    numbers = ", ".join(f"{value:.4g}" for value in rows[0].ravel()[:2])
    return f"[{numbers}{', ...' if rows[0].size > 2 else ''}]"


def _same(saved: _Saved, found: Fingerprint) -> bool:
    return _same_prior(saved, found) and (not saved.repeatable or _alike(saved.fingerprint.x, found.x))


def _same_prior(saved: _Saved, found: Fingerprint) -> bool:
    return _alike(saved.fingerprint.theta, found.theta)


def _alike(old: np.ndarray, new: np.ndarray) -> bool:
    """Whether rows that are finite in both agree; a row that failed may have been mended."""
    if old.shape != new.shape:
        return bool(np.isnan(old).all() or np.isnan(new).all())
    both = np.isfinite(old).reshape(len(old), -1).all(1) & np.isfinite(new).reshape(len(new), -1).all(1)
    scale = np.abs(old[both]).mean() if both.any() else 0.0
    return bool(np.allclose(old[both], new[both], rtol=TOLERANCE, atol=TOLERANCE * scale))


def _write(path: Path, fingerprint: Fingerprint, *, repeatable: bool = True, replace: bool = True) -> bool:
    arrays = {"theta": np.ascontiguousarray(fingerprint.theta), "x": np.ascontiguousarray(fingerprint.x)}
    facts: dict[str, Any] = {name: checksum(name, array) for name, array in arrays.items()}
    facts |= {"seconds": fingerprint.seconds, "repeatable": repeatable, **asdict(Owner.current())}
    content = save(arrays, metadata={"facts": json.dumps(facts)})
    return write_with(path, lambda file: file.write(content), replace=replace)


def _read(path: Path) -> _Saved | None:
    """What a file holds; a damaged one counts as none, since it says nothing about the simulations."""
    if not path.exists():
        return None
    try:
        content = read_bytes(path, most=MAX_BYTES)
        length = int.from_bytes(content[:8], "little")
        facts = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["facts"])
        arrays = load(content)
        if any(facts[name] != checksum(name, arrays[name]) for name in ("theta", "x")):
            return None
        fingerprint = Fingerprint(arrays["theta"], arrays["x"], float(facts["seconds"]))
        return _Saved(fingerprint, Owner.from_json(facts), facts["repeatable"] is True)
    except (InputError, SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
