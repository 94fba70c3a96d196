"""From a method of a specification to a recipe that trains as the paper did.

One pass, no regression, a constant learning rate without warm-up, no averages, no clipping; training ends at the first
rise of the validation score after a given step, if at all, and the last weights are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.paper import gatsbi
from benchmarks.paper.specs import factory, rule_of
from propersbi.recipes import Recipe
from propersbi.training import FirstRise, TrainConfig

__all__ = ["paper_recipe"]

PLAIN: dict[str, Any] = {"keep": "last", "average": 0.0, "warmup": 0, "decay": False, "clip": None}
NOT_TRAINING = ("network", "batch_size", "held_out", "center", "first_rise")  # keys of a specification's training


def paper_recipe(
    method: Mapping[str, Any],
    training: Mapping[str, Any],
    theta_shape: Sequence[int],
    *,
    draws: int,
    simulations: int,
    reduced: bool = False,
) -> Recipe:
    """The recipe of a method of the paper.

    Arguments:
        method: With a ``rule``, or with ``gan``, the name of a section of ``gatsbi.toml``.
        training: The network, the batch size, the share held out, ``first_rise`` and options of ``TrainConfig``.
        theta_shape: The event shape of the parameters.
        draws: Draws per pair.
        simulations: Pairs, of which a batch takes a tenth at most.
        reduced: Whether adversarial training takes its smaller critic and batches.
    """
    options, choices = {**PLAIN, **training}, dict[str, Any]()
    if "gan" in method:
        spec = gatsbi.read_spec(method["gan"], reduced)
        options |= {**PLAIN, **spec["training"], "batch_size": spec["batch_size"], "network": spec["generator"]}
        options["max_steps"] = min(spec["training"]["max_steps"], training["max_steps"])
        options["held_out"] = spec["held_out"] / simulations
        options["stopping"] = gatsbi.stopping(spec)
        choices["objective"] = gatsbi.objective(spec)
    else:
        options["stopping"] = (FirstRise(training["first_rise"]),)
        choices |= {"rule": rule_of(method["rule"], theta_shape), "draws": draws}
    held_out = min(max(2, round(options["held_out"] * simulations)), simulations // 2)
    return Recipe(
        network=factory(options["network"]),
        batch_size=max(2, min(options["batch_size"], simulations // 10)),
        validation_fraction=held_out / simulations,
        max_validation=held_out,
        training=TrainConfig(**{key: value for key, value in options.items() if key not in NOT_TRAINING}),
        **choices,
    )
