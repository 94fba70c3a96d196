"""The adversarial baselines of the paper, from their specifications (``gatsbi.toml``).

    python -m benchmarks.gatsbi two_moons --simulations 10000 --reduced
    python -m benchmarks.gatsbi two_moons --simulations 100000        # as in the paper: days on two cores

``--reduced`` keeps the game and takes a smaller critic, fewer steps and smaller batches. Prints the held-out energy
score and, where the true posterior is known and has few parameters, C2ST over three observations.
"""

from __future__ import annotations

import argparse
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import propersbi as ps
from propersbi import games, networks
from propersbi.types import InputError

MANY = 40  # parameters that are too many for the classifier of the C2ST
SPECS = Path(__file__).parent / "gatsbi.toml"


def specs() -> dict[str, dict[str, Any]]:
    return tomllib.loads(SPECS.read_text())


def chosen(name: str, reduced: bool = False) -> dict[str, Any]:
    """One specification; the reduced one has the smaller numbers in place."""
    if name not in specs():
        raise InputError(f"There is no specification '{name}': choose one of {', '.join(specs())}.")
    spec = specs()[name]
    smaller = spec.pop("reduced", {})
    if reduced:
        spec["training"] |= {key: smaller.pop(key) for key in ("max_steps",) if key in smaller}
        spec |= smaller
    return spec


def made(module: Any, description: dict[str, Any], *shapes: Any) -> Any:
    """An object of a module from its class name and options."""
    options = {key: value for key, value in description.items() if key != "class"}
    if not hasattr(module, description["class"]):
        raise InputError(f"There is no '{description['class']}' in {module.__name__}.")
    return getattr(module, description["class"])(*shapes, **options)


def objective(spec: dict[str, Any], sampler: Any) -> ps.Adversarial:
    return ps.Adversarial(
        sampler,
        made(games, spec["game"]),
        critic=made(networks, spec["critic"], sampler.theta_shape, sampler.x_shape),
        critic_steps=spec["critic_steps"],
        sampler_steps=spec["generator_steps"],
        unrolled=spec.get("unrolled", 0),
        unroll_rate=spec["training"]["learning_rate"],
        stop_when_even=spec.get("stop_when_even"),
    )


def fit(spec: dict[str, Any], theta: Any, x: Any, prior: Any, seed: int, **options: Any) -> ps.Posterior:
    """Train as specified; parameters and data are standardised, which the paper did not do."""
    training = {**spec["training"], "betas": tuple(spec["training"]["betas"]), "patience": None}
    training.setdefault("clip", None)
    return ps.fit(
        theta,
        x,
        prior=prior,
        network=partial(made, networks, spec["generator"]),
        objective=partial(objective, spec),
        steps=1,
        seed=seed,
        batch_size=min(spec["batch_size"], len(theta) // 10),
        validation_fraction=max(spec["held_out"], 2) / len(theta),
        **{**training, **options},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(specs()))
    parser.add_argument("--simulations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reduced", action="store_true")
    options = parser.parse_args()
    spec = chosen(options.name, options.reduced)
    task = ps.tasks.get(spec["task"])
    sims = ps.simulate(task.prior, task.simulate, options.simulations, seed=options.seed)
    posterior = fit(spec, sims.theta, sims.x, task.prior, options.seed)
    scores = []
    for i in (1, 2, 3) if task.posterior is not None and len(task.parameter_names) <= MANY else ():
        truth = task.reference_posterior(task.observation(i), 2000, np.random.default_rng(i))
        scores.append(ps.metrics.c2st(posterior.sample((2000,), x=task.observation(i), seed=i).numpy(), truth))
    info = posterior.info
    name = f"{options.name} (reduced)" if options.reduced else options.name
    told = f"C2ST {np.mean(scores):.3f}, " if scores else ""
    print(
        f"{name}, {options.simulations} simulations, seed {options.seed}: "
        f"{told}held-out score {info['best_score']:.3f}, {info['steps']} steps in "
        f"{info['seconds']:.0f} s, stopped by {info['stopped']}"
    )


if __name__ == "__main__":
    main()
