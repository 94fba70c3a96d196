"""Damaged and hostile files: every reader answers with what the file says or with an ``InputError``.

Half of the damage is hidden behind checksums that fit, as an attacker would do it.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import propersbi as ps
from benchmarks.attacks.mutations import damage_bytes, damage_json, damage_safetensors
from benchmarks.attacks.outcome import Outcome, limited
from propersbi.app.observed import read_observation
from propersbi.app.status import status
from propersbi.diagnostics import Diagnostics
from propersbi.simulation.importing import read_blocks
from propersbi.simulation.store import Store
from propersbi.storage.files import checksum_of_json, read_json
from propersbi.storage.records import RunRecord, read_rounds
from propersbi.training.checkpoint import MAGIC
from propersbi.training.history import History
from propersbi.types import MAX_MESSAGE, InputError

__all__ = ["TARGETS", "attack_files", "make_files"]

LONGEST = 20  # seconds after which a reader hangs
PRIOR = [torch.distributions.Normal(0.0, 1.0), torch.distributions.Uniform(0.0, 1.0)]
FAST: dict[str, Any] = {"max_steps": 6, "validate_every": 3, "refinement_steps": 2, "batch_size": 32, "progress": False}


def make_files(folder: Path) -> None:
    """A small run with everything in it: store, checkpoint, posterior, diagnostics, rounds, observations."""
    theta = np.random.default_rng(0).normal(size=(120, 2))
    problem = ps.Problem(prior=PRIOR, simulator=_simulator, parameter_names=["a", "b"], x_o=[0.1, 0.2], name="attacked")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ps.run(problem, folder=folder, simulations=120, test=40, **FAST)
    content = {
        "correction": "Truncated()",
        "rounds": [{"round": 1, "simulations": 60, "score": 0.5, "proposal": [[0.0, 1.0, 2.0]]}],
    }
    (folder / "rounds.json").write_text(json.dumps(content))
    np.save(folder / "x.npy", theta[0])
    (folder / "x.csv").write_text("a,b\n0.1,0.2\n")
    (folder / "plan.json").write_text(json.dumps({"train": 120, "test": 40}))
    (folder / "elsewhere").mkdir()
    np.savez_compressed(folder / "elsewhere" / "pairs.npz", theta=theta, x=theta)


def _simulator(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if theta[0] > 1.8:
        raise ValueError("too large")
    return theta + 0.1 * rng.normal(size=2)


def attack_files(name: str, original: Path, scratch: Path, share: float, seed: int = 0) -> Outcome:
    """Damage copies of the files of a run of one kind, a share of all attacks on them, and read them."""
    outcome = Outcome()
    count, places, read = TARGETS[name]
    for i in range(max(1, round(share * count))):
        rng = random.Random(f"{seed} {name} {i}")
        place = rng.choice(places)
        folder = scratch / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original, folder)
        _damage(rng.choice(sorted(folder.glob(place))), rng)
        _try(outcome, partial(read, folder), f"{name} {place} seed {seed} number {i}")
    return outcome


def _damage(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    if rng.random() < 0.5:
        path.write_bytes(damage_bytes(content, rng))
        return
    if path.suffix == ".json":
        data = json.loads(content)
        path.write_text(json.dumps(_sealed(damage_json(data, rng)), allow_nan=True))
    elif path.suffix == ".safetensors":
        path.write_bytes(damage_safetensors(content, rng))
        _seal_weights(path)
    elif path.suffix == ".ckpt":
        body = damage_safetensors(content[len(MAGIC) + 32 :], rng)
        path.write_bytes(MAGIC + hashlib.sha256(body).digest() + body)
    else:
        path.write_bytes(damage_bytes(content, rng))
        _seal_arrays(path)


def _sealed(data: Any) -> Any:
    """The same with a checksum that fits, where there was one."""
    if not isinstance(data, dict) or "checksum" not in data:
        return data
    rest = {key: value for key, value in data.items() if key != "checksum"}
    try:
        return {**rest, "checksum": checksum_of_json(rest)}
    except (ValueError, RecursionError, TypeError):
        return data


def _seal_weights(path: Path) -> None:
    config = path.parent / "config.json"
    if path.name == "weights.safetensors" and config.exists():
        data = json.loads(config.read_text())
        data["weights"] = hashlib.sha256(path.read_bytes()).hexdigest()
        config.write_text(json.dumps(_sealed(data)))


def _seal_arrays(path: Path) -> None:
    if path.name == "diagnostics.npz":
        data = json.loads(path.with_suffix(".json").read_text())
        data["arrays"] = hashlib.sha256(path.read_bytes()).hexdigest()
        path.with_suffix(".json").write_text(json.dumps(data))


def _try(outcome: Outcome, read: Callable[[], Any], what: str) -> None:
    outcome.count += 1
    try:
        with limited(LONGEST), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read()
    except InputError as error:
        outcome.refused += 1
        if len(str(error)) > MAX_MESSAGE:
            outcome.broken.append(f"{what}: a message of {len(str(error))} characters")
    except Exception as error:
        outcome.broken.append(f"{what}: {type(error).__name__}: {str(error)[:150]}")


def _read_posterior(folder: Path) -> None:
    posterior = ps.Posterior.load(folder / "posterior")
    draws = posterior.sample((5,), x=np.zeros(posterior.x_shape), seed=0, show_progress_bars=False)
    if not bool(draws.isfinite().all()):
        raise AssertionError("draws are not finite")
    posterior.summary(np.zeros(posterior.x_shape), num_samples=10, seed=0)
    _ = repr(posterior), posterior._repr_html_(), str(posterior.recipe)


def _read_store(folder: Path) -> None:
    store = Store.open(folder / "simulations")
    for group in ("train", "test"):
        theta, x = store.rows(group)
        if not (np.isfinite(theta[:]).all() and np.isfinite(x[:]).all()):
            raise AssertionError("rows are not finite")
        _ = store.failures(group), store.parameter_names, store.x_names, store.x_shape


def _read_records(folder: Path) -> None:
    record = RunRecord.load(folder)
    json.dumps(record.to_json(), allow_nan=False)
    read_rounds(folder)
    History.from_json(read_json(folder / "history.json"))


def _read_diagnostics(folder: Path) -> None:
    checks = Diagnostics.load(folder)
    _ = checks.summary(), checks.overall, checks.headline, checks.verdicts


def _read_report(folder: Path) -> None:
    ps.report(folder)


def _read_observations(folder: Path) -> None:
    read_observation(folder / "x.npy", None)
    read_observation(folder / "x.csv", None)


def _continue(folder: Path) -> None:
    """Everything that looks at the files beside the simulations."""
    status(folder)
    options: dict[str, Any] = {"parameter_names": ["a", "b"], "batched": False, "progress": False}
    ps.simulate(PRIOR, _simulator, 120, path=folder / "simulations", **options)
    list(read_blocks([folder / "elsewhere"]))


def _read_checkpoint(folder: Path) -> None:
    from propersbi.app.directory import Run

    Run.open(folder).train(**FAST)


TARGETS: dict[str, tuple[int, list[str], Callable[[Path], None]]] = {
    "posterior": (
        2900,
        ["posterior/config.json", "posterior/config.json", "posterior/weights.safetensors"],
        _read_posterior,
    ),
    "store": (1850, ["simulations/manifest.json", "simulations/train/chunk-000001.safetensors"], _read_store),
    "run records": (1450, ["run.json", "rounds.json", "history.json"], _read_records),
    "diagnostics": (1450, ["diagnostics.json", "diagnostics.npz"], _read_diagnostics),
    "observation": (1100, ["x.npy", "x.csv"], _read_observations),
    "checkpoint": (700, ["checkpoint.ckpt"], _read_checkpoint),
    "beside simulations": (
        400,
        [
            "plan.json",
            "simulations/train/fingerprint.safetensors",
            "simulations/train/*.failures.json",
            "elsewhere/pairs.npz",
        ],
        _continue,
    ),
    "report": (350, ["run.json", "rounds.json", "diagnostics.json", "history.json", "diagnostics.npz"], _read_report),
}
