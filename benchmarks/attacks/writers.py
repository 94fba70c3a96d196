"""Two processes that write the same: one posterior saved by both and read meanwhile, one folder run by both."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import propersbi as ps
from benchmarks.attacks.kills import digests, work
from benchmarks.attacks.outcome import Outcome
from propersbi.storage.locks import LockedError

__all__ = ["attack_run", "attack_saves", "attack_simulate"]

FAST: dict[str, Any] = {
    "max_steps": 40,
    "validate_every": 20,
    "refinement_steps": 1,
    "batch_size": 32,
}
DONE, REFUSED, FAILED = 0, 3, 1


def attack_saves(times: int, scratch: Path) -> Outcome:
    """Two processes save a posterior each into one folder while this one reads it; every reading is one of the two."""
    folder = scratch / "saved"
    posteriors = [_posterior(seed) for seed in (0, 1)]
    possible = [_draws(posterior) for posterior in posteriors]
    posteriors[0].save(folder)
    children = [_fork(partial(_save, posterior, folder, times), scratch / "saves") for posterior in posteriors]
    outcome, readings, codes = Outcome(2 * times), 0, dict.fromkeys(children, -1)
    while children:
        for child in tuple(children):
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                codes[child] = os.waitstatus_to_exitcode(status)
                children.remove(child)
        try:
            known = _draws(ps.Posterior.load(folder)) in possible
            outcome.broken += [] if known else ["a posterior that nobody saved was read"]
        except Exception as error:
            outcome.broken.append(f"reading: {type(error).__name__}: {str(error)[:150]}")
        readings += 1
    outcome.broken += _failures(list(codes.values()), scratch / "saves")
    left = sorted(path.name for path in folder.iterdir())
    outcome.broken += [] if left == ["config.json", "weights.safetensors"] else [f"left behind: {left}"]
    outcome.note = f"{readings:,} readings in between"
    return outcome


def _posterior(seed: int) -> ps.Posterior:
    theta = np.random.default_rng(seed).normal(size=(100, 2))
    return ps.fit(theta, theta**2, seed=seed, progress=False, **{**FAST, "max_steps": 2})


def _draws(posterior: ps.Posterior) -> object:
    return posterior.sample((3,), x=np.zeros(2), seed=0, show_progress_bars=False).tolist()


def _save(posterior: ps.Posterior, folder: Path, times: int) -> None:
    for _ in range(times):
        posterior.save(folder)


def attack_run(times: int, scratch: Path) -> Outcome:
    """Two whole runs start at once in one folder: one is refused or waits, and the end is that of one alone."""
    _run(scratch / "alone")
    return _pairs("run", times, scratch, _run, partial(_digests_of_run, scratch / "alone")(), _digests_of_run)


def attack_simulate(times: int, scratch: Path) -> Outcome:
    """Two processes simulate the same into one folder: both end, with the bytes of one alone."""
    work("simulate", scratch / "one")
    found = partial(digests, "simulate")
    return _pairs("simulate", times, scratch, partial(work, "simulate"), found(scratch / "one"), found)


def _pairs(
    name: str,
    times: int,
    scratch: Path,
    job: Callable[[Path], None],
    expected: dict[str, str],
    found: Callable[[Path], dict[str, str]],
) -> Outcome:
    outcome, refused = Outcome(), 0
    for i in range(times):
        folder, notes = scratch / f"{name}-pair-{i}", scratch / f"{name}-{i}"
        children = [_fork(partial(job, folder), notes) for _ in range(2)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        outcome.count, refused = outcome.count + 1, refused + codes.count(REFUSED)
        outcome.broken += _failures([code for code in codes if code != REFUSED], notes)
        if codes.count(REFUSED) == len(codes):
            outcome.broken.append(f"{name} {i}: both were refused")
        if found(folder) != expected:
            outcome.broken.append(f"{name} {i}: the end differs from that of one process")
    outcome.note = f"the second was refused {refused} times" if refused else ""
    return outcome


def _prior() -> list[torch.distributions.Distribution]:
    return [torch.distributions.Normal(0.0, 1.0)] * 2


def _run(folder: Path) -> None:
    problem = ps.Problem(prior=_prior(), simulator=_noisy, x_o=[0.1, 0.2], name="twice")
    ps.run(problem, folder=folder, simulations=200, test=40, progress=False, **FAST)


def _noisy(theta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.asarray(theta) + 0.1 * rng.normal(size=theta.shape)


def _digests_of_run(folder: Path) -> dict[str, str]:
    return {**digests("fit", folder), **digests("simulate", folder / "simulations")}


def _fork(job: Callable[[], None], notes: Path) -> int:
    child = os.fork()
    if child:
        return child
    code = FAILED
    try:
        warnings.simplefilter("ignore")
        job()
        code = DONE
    except LockedError:
        code = REFUSED
    except BaseException:
        notes.with_name(f"{notes.name}-{os.getpid()}.errors").write_text(traceback.format_exc())
    finally:
        sys.stdout.flush()
        os._exit(code)


def _failures(codes: list[int], notes: Path) -> list[str]:
    texts = [path.read_text()[-300:] for path in notes.parent.glob(f"{notes.name}-*.errors")]
    return texts or [f"a process ended with code {code}" for code in codes if code != DONE]
