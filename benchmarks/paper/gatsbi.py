"""The adversarial baselines of the paper, from their specifications (``gatsbi.toml``).

    python -m benchmarks.paper.gatsbi two_moons --simulations 10000 --reduced --max-steps 1000
    python -m benchmarks.paper.gatsbi two_moons --simulations 100000        # as in the paper: days on two cores

``--reduced`` takes a smaller critic and smaller batches. Prints the validation score and, where the true posterior is
known and has few parameters, C2ST over three observations.
"""

from __future__ import annotations

import argparse
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import propersbi as ps
from benchmarks.paper.specs import factory
from propersbi.recipes import Factory
from propersbi.samplers import Sampler
from propersbi.storage.config import decode
from propersbi.training import Evenness, Stopping
from propersbi.training.divergences import Divergence
from propersbi.types import InputError

__all__ = ["AdversarialMaker", "fit", "objective", "read_spec", "specs", "stopping"]

MAX_PARAMETERS = 40  # above which the classifier of the C2ST is slow
SPECS = Path(__file__).parent / "gatsbi.toml"


@dataclass(frozen=True)
class AdversarialMaker:
    """Makes the adversarial objective of a sampler, with a critic for its shapes.

    Arguments:
        critic: What makes the critic.
        divergence: How its outputs become losses.
        critic_steps: Steps of the critic in a round,
        sampler_steps: and of the sampler.
        unrolled: Further steps of the critic that the sampler anticipates.
        unroll_rate: The step size of these.
    """

    critic: Factory
    divergence: Divergence
    critic_steps: int = 1
    sampler_steps: int = 1
    unrolled: int = 0
    unroll_rate: float = 1e-3

    def __call__(self, sampler: Sampler) -> ps.Adversarial:
        """The objective, with a new critic."""
        return ps.Adversarial(
            sampler,
            self.divergence,
            critic=self.critic(sampler.theta_shape, sampler.x_shape),
            critic_steps=self.critic_steps,
            sampler_steps=self.sampler_steps,
            unrolled=self.unrolled,
            unroll_rate=self.unroll_rate,
        )


def specs() -> dict[str, dict[str, Any]]:
    return tomllib.loads(SPECS.read_text())


def read_spec(name: str, reduced: bool = False) -> dict[str, Any]:
    """One specification; the reduced one has the smaller networks and batches in place."""
    if name not in specs():
        raise InputError(f"There is no specification '{name}': choose one of {', '.join(specs())}.")
    spec = specs()[name]
    smaller = spec.pop("reduced", {})
    return {**spec, **smaller} if reduced else spec


def objective(spec: dict[str, Any]) -> AdversarialMaker:
    """What makes the objective of a specification."""
    return AdversarialMaker(
        factory(spec["critic"]),
        decode(spec["divergence"]),
        critic_steps=spec["critic_steps"],
        sampler_steps=spec["generator_steps"],
        unrolled=spec.get("unrolled", 0),
        unroll_rate=spec["training"]["learning_rate"],
    )


def stopping(spec: dict[str, Any]) -> tuple[Stopping, ...]:
    """The stopping rules of a specification: never by the validation score."""
    return (Evenness(spec["evenness"]),) if "evenness" in spec else ()


def fit(spec: dict[str, Any], theta: Any, x: Any, prior: Any, seed: int, **options: Any) -> ps.Posterior:
    """Train as specified; parameters and data are standardised, which the paper did not do."""
    choices: dict[str, Any] = {
        "clip": None,
        **spec["training"],
        "network": factory(spec["generator"]),
        "objective": objective(spec),
        "stopping": stopping(spec),
        "refinement_steps": 1,
        "batch_size": min(spec["batch_size"], len(theta) // 10),
        "validation_fraction": max(spec["held_out"], 2) / len(theta),
    }
    return ps.fit(theta, x, prior=prior, seed=seed, **{**choices, **options})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(specs()))
    parser.add_argument("--simulations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reduced", action="store_true")
    parser.add_argument("--max-steps", type=int, help="rounds of critic and sampler; as in the paper unless given")
    options = parser.parse_args()
    spec = read_spec(options.name, options.reduced)
    task = ps.tasks.get(spec["task"])
    sims = ps.simulate(task.prior, task.simulate, options.simulations, seed=options.seed)
    limit = {} if options.max_steps is None else {"max_steps": options.max_steps}
    posterior = fit(spec, sims.theta, sims.x, task.prior, options.seed, **limit)
    scores = []
    for i in (1, 2, 3) if task.posterior is not None and math.prod(task.theta_shape) <= MAX_PARAMETERS else ():
        truth = task.reference_posterior(task.observation(i), 2000, np.random.default_rng(i))
        scores.append(ps.metrics.c2st(posterior.sample((2000,), x=task.observation(i), seed=i).numpy(), truth))
    info = posterior.info
    name = f"{options.name} (reduced)" if options.reduced else options.name
    accuracy = f"C2ST {np.mean(scores):.3f}, " if scores else ""
    print(
        f"{name}, {options.simulations} simulations, seed {options.seed}: "
        f"{accuracy}validation score {info['kept_score']:.3f}, {info['steps']} steps in "
        f"{info['seconds']:.0f} s, stopped by {info['stopped']}"
    )


if __name__ == "__main__":
    main()
