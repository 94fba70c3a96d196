"""What follows from the data where nothing is asked for: the recipe that :func:`propersbi.fit` takes by default."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor, nn

from propersbi import schedule
from propersbi.columns import logarithms, uneven_columns
from propersbi.given import described, settings_of, takes_steps
from propersbi.networks import is_grid, is_image_problem
from propersbi.recipes import PLACES, Factory, Recipe, as_places, check_names, training_names
from propersbi.samplers import ChainGenerator, RefinedSampler, Sampler, Standardized, Support
from propersbi.samplers.base import refinement_steps_of
from propersbi.samplers.blocks import with_integers
from propersbi.samplers.priors import UNKNOWN, Known, places, what_is_known
from propersbi.samplers.torch_support import Described
from propersbi.scoring import EnergyScore
from propersbi.screening import unrelated_numbers
from propersbi.simulation.priors import parameter_names
from propersbi.storage.checks import check_whole
from propersbi.structure import Structure, structure_for, tail_of, takes_embedding
from propersbi.training.batches import Pairs, prepared_rows, validation_size
from propersbi.training.config import TrainConfig
from propersbi.types import InputError

__all__ = ["Choices"]

REFINEMENT_STEPS = 8
CHAIN_WIDTH = 128  # of a network that is one step of several
INTERVALS = 16  # between quantiles of uneven numbers
EARLIEST_CHECK = 200  # gradient steps after which training must have improved on the linear regression
LARGE_DATA = 1000  # numbers in x above which a step of training is costly


@dataclass
class Choices:
    """Completes a recipe: what was asked for is taken; the rest follows from it, the shapes and the number of pairs.

    Arguments:
        theta_shape: The event shape of the parameters.
        x_shape: The event shape of the data.
        n: Pairs.
        prior: The prior, for its support.
        changes: What was asked for.
        names: Names of the parameters, by which ``discrete`` may call them; by default those of the prior.
        columns: What the type of the training parameters says.
        pairs: The pairs; without them nothing is chosen by the numbers themselves.
        plain: Whether they are draws of the prior and the whole simulator, without weights or noise to add. Then
            numbers of the data that say nothing are found, and further pairs emulated where that helps.
    """

    theta_shape: tuple[int, ...]
    x_shape: tuple[int, ...]
    n: int
    prior: Any = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    modules: dict[str, nn.Module] = field(default_factory=dict)
    """Networks that were given already built, which a recipe knows by name only."""
    names: Sequence[str] | None = None
    columns: Described = UNKNOWN
    pairs: Pairs | None = None
    plain: bool = False

    @classmethod
    def of(cls, pairs: Pairs, prior: Any, changes: Mapping[str, Any], **known: Any) -> Choices:
        """The choices for given pairs."""
        shapes = tuple(pairs.theta.shape[1:]), tuple(pairs.x.shape[1:])
        return cls(*shapes, len(pairs.theta), prior, changes, pairs=pairs, **known)

    def __post_init__(self) -> None:
        check_names(self.changes)
        self.theta_shape, self.x_shape = tuple(self.theta_shape), tuple(self.x_shape)
        self.changes = {name: self._value(name, value) for name, value in self.changes.items()}
        if self.changes.get("support") is not None:
            self.changes = {**self.changes, "support": self.known.support}

    def recipe(self) -> Recipe:
        """The complete recipe."""
        objective = self.choose("objective", None)
        steps = self.refinement_steps(objective)
        most = self.choose("max_validation", 500 if self.large() else 5000)
        fraction = self.choose("validation_fraction", 0.1)
        emulated = check_whole("emulated", self.choose("emulated", *self.emulated(steps)), 0)
        simulated = self.n - validation_size(self.n, fraction, most)
        rows = simulated + emulated
        regression = self.choose("regression", *self.regression(steps, rows))
        size = schedule.batch_size(rows, large=self.large(), optimizer=self.optimizer(steps, rows))
        rule = EnergyScore(beta=0.5), "strictly proper, and sensitive to thin posteriors"
        draws = (5, "images are large") if self.images() else (10, "more draws did not help")
        return Recipe(
            network=self.choose("network", *self.network(objective, steps, rows)),
            embedding=self.choose("embedding", *self.embedding()),
            regression=regression,
            refinement_steps=steps,
            objective=objective,
            rule=self.choose("rule", *(rule if objective is None else (None, ""))),
            draws=self.choose("draws", *(draws if objective is None else (None, ""))),
            support=self.support(),
            discrete=self.discrete(),
            log_theta=tuple(self.choose("log_theta", *self.log_theta())),
            log_x=tuple(self.choose("log_x", *self.log_x())),
            ignored_x=self.ignored_x,
            layout=self.structure.layout,
            exchangeable=self.choose("exchangeable", False),
            missing=self.choose("missing", *(("allow", "found in the data") if self.missing else ("exclude", ""))),
            standardize=self.choose("standardize", True),
            tail=self.choose("tail", *tail_of(self.x_shape, self.structure.layout)),
            batch_size=self.choose("batch_size", *size),
            validation_fraction=fraction,
            max_validation=most,
            emulated=emulated,
            ensemble=self.choose("ensemble", 1),
            training=self.training(objective, steps, simulated, rows, regression),
            reasons=self.reasons,
        )

    def choose(self, name: str, value: Any, reason: str = "") -> Any:
        """What was asked for under this name, or else ``value``; the reason is noted."""
        if name in self.changes:
            self.reasons[name] = "chosen"
            return self.changes[name]
        if reason:
            self.reasons[name] = reason
        return value

    @cached_property
    def rows(self) -> tuple[Tensor, Tensor] | None:
        """Some of the pairs."""
        return None if self.pairs is None else self.pairs.some

    @cached_property
    def missing(self) -> bool:
        """Whether entries of the data are missing."""
        return self.pairs is not None and self.pairs.missing

    def numbers(self) -> int:
        """In the data of one simulation."""
        return math.prod(self.x_shape)

    @cached_property
    def ignored_x(self) -> tuple[int, ...]:
        """Numbers of a long vector that say nothing about the parameters; a network would memorise them."""
        found, free = [], self.plain and self.own_network() and "ignored_x" not in self.changes
        if self.pairs is not None and free and self.vectors() and schedule.is_long(self.numbers()):
            found = unrelated_numbers(*self.pairs.many)
        if len(found) < self.numbers() / 2:
            return tuple(self.choose("ignored_x", ()))
        return tuple(self.choose("ignored_x", found, "no dependence found on the parameters, nor on the other numbers"))

    def vectors(self) -> bool:
        """Whether parameters and data are plain vectors without missing entries."""
        plain = not (self.missing or self.embedded() or self.structure.embedding)
        return plain and len(self.theta_shape) == len(self.x_shape) == 1

    def embedded(self) -> bool:
        """Whether the user has an embedding of the data."""
        return self.changes.get("embedding") is not None

    def images(self) -> bool:
        """Whether parameters and data are images on one grid."""
        return not self.embedded() and is_image_problem(self.real_shape, self.x_shape)

    @cached_property
    def structure(self) -> Structure:
        """What the axes of the data mean."""
        custom = self.images() or self.embedded() or not takes_embedding(self.changes.get("network"))
        layout = None if self.pairs is None else self.pairs.layout
        return structure_for(self.x_shape, self.rows, layout, self.missing, self.changes, custom=custom)

    def large(self) -> bool:
        """Whether a step of training is costly."""
        return self.images() or (self.numbers() > LARGE_DATA and self.structure.embedding is None)

    def own_network(self) -> bool:
        """Whether the network and what it sees of the data are the library's choice."""
        return "network" not in self.changes and not self.embedded()

    def network(self, objective: Any, steps: int, rows: int) -> tuple[Factory, str]:
        """What makes the sampler, for so many training pairs."""
        if isinstance(objective, Factory) and objective.name == "MaximumLikelihood":
            return Factory("Flow"), "the log score needs a density"
        if self.images():
            return Factory("UNetGenerator"), "theta and x are images on one grid"
        if steps != 1:
            finer = {"intervals": INTERVALS} if rows >= schedule.MANY_PAIRS and self.uneven() else {}
            why = "each step has little to do; x is dense in places" if finer else "each step has little to do"
            return Factory("MLPGenerator", {"width": CHAIN_WIDTH, **finer}), f"theta is a vector, and {why}"
        return Factory("MLPGenerator"), "theta is a vector"

    def uneven(self) -> bool:
        """Whether most numbers of a short data vector are so dense in places that linear units cannot resolve them."""
        if self.rows is None or not self.vectors() or schedule.is_long(self.numbers()):
            return False
        found = set(uneven_columns(self.rows[1])) - set(self.log_x()[0])
        return len(found) > self.numbers() / 2

    def embedding(self) -> tuple[Factory | None, str]:
        """Of data that are more than a vector, or on a large grid."""
        if self.structure.embedding is not None:
            return self.structure.embedding, self.structure.reason
        grid = self.large() and not self.images() and is_grid(self.x_shape) and "network" not in self.changes
        return (Factory("GridEmbedding"), f"{self.numbers()} numbers in x, on a grid") if grid else (None, "")

    def refinement_steps(self, objective: Any) -> int:
        """Of a draw: several, unless the objective or the network draws in one pass, or a chain would be slow."""
        given = self.modules.get("network")
        made = refinement_steps_of(given) if isinstance(given, Sampler) else 1
        if isinstance(given, RefinedSampler) and made > 1:
            steps: int = self.choose("refinement_steps", made, "the given sampler")
            if steps != made:
                raise InputError(f"The sampler has refinement_steps = {made}, but {steps} were asked for.")
            return steps
        if given is not None and not (isinstance(given, ChainGenerator) and given.chain):
            value, reason = 1, "the given network draws in one pass"
        elif not takes_steps(self.changes.get("network")):
            value, reason = 1, "the network draws in one pass"
        elif objective is not None:
            value, reason = 1, "the objective is for samplers of one pass"
        elif self.large():
            value, reason = 1, "images" if self.images() else f"{self.numbers()} numbers in x: a chain would be slow"
        else:
            value, reason = REFINEMENT_STEPS, "thin posteriors need several steps"
        return check_whole("refinement_steps", self.choose("refinement_steps", value, reason), 1)

    def regression(self, steps: int, rows: int) -> tuple[bool, str]:
        """Whether vectors are so small, and pairs so many, that a linear regression is quick and says something."""
        few = prepared_rows(rows, self.x_shape)
        if steps == 1 or "network" in self.modules:
            return False, ""
        shape = self.real_shape
        small = len(shape) == 1 and max(shape[0], self.structure.inputs(self.x_shape)) <= min(LARGE_DATA, few // 2)
        return small, "what is linear needs no training" if small else "too many numbers, or too few simulations"

    @cached_property
    def known(self) -> Known:
        """What is known of the parameters."""
        return what_is_known(self.theta_shape, self.changes.get("support"), self.prior, self.columns)

    @cached_property
    def real_shape(self) -> tuple[int, ...]:
        """The shape of the coordinates of the support, in which the network works."""
        size = math.prod(self.theta_shape)
        return with_integers(self.known.support, self.discrete(), size).real_shape(self.theta_shape)

    def support(self) -> Support:
        """The support of the parameters."""
        self.reasons["support"] = self.known.reason
        return self.known.support

    def discrete(self) -> tuple[int, ...]:
        """Which parameters are whole numbers."""
        return tuple(self.choose("discrete", self.known.discrete, self.known.discrete_reason))

    def log_theta(self) -> tuple[tuple[int, ...], str]:
        """Skewed positive parameters without an upper bound."""
        if self.rows is None or len(self.theta_shape) != 1:
            return (), ""
        return logarithms(self.rows[0], self.known.support, self.discrete())

    def log_x(self) -> tuple[tuple[int, ...], str]:
        """Skewed positive data."""
        if self.rows is None or len(self.x_shape) != 1 or self.embedded() or self.structure.embedding:
            return (), ""
        return logarithms(self.rows[1])

    def optimizer(self, steps: int, rows: int) -> str:
        """SOAP for the library's network on plain vectors, where it suits the number of pairs."""
        suited, limit = ("adamw", ""), self.changes.get("time_limit")
        if steps != 1 and self.own_network() and self.plain and self.vectors():
            suited = schedule.optimizer(rows, emulator=False, time_limit=limit)
        return str(self.choose("optimizer", *suited))

    def training(self, objective: Any, steps: int, simulated: int, rows: int, regression: bool) -> TrainConfig:
        """The training configuration for so many simulated pairs, and rows with the emulated ones."""
        numbers = math.prod(self.real_shape) + self.structure.inputs(self.x_shape) - len(self.ignored_x)
        chosen: dict[str, Any] = {"optimizer": self.optimizer(steps, rows)}
        kind: dict[str, Any] = {"chain": steps != 1, "emulated": rows > simulated, **chosen}
        usual = schedule.max_steps(simulated, numbers, **kind)
        chosen["max_steps"] = check_whole("max_steps", self.choose("max_steps", *usual), 1)
        if self.large():
            chosen["validate_every"] = self.choose("validate_every", 50, "large data: a step is costly")
        if steps != 1:
            rate, warmup, why = schedule.peak_rate(rows, simulated, chosen["optimizer"], self.changes.get("time_limit"))
            chosen["warmup"] = self.choose("warmup", min(warmup, chosen["max_steps"] // 3), why)
            if self.own_network():
                chosen["learning_rate"] = self.choose("learning_rate", rate, f"a network of width {CHAIN_WIDTH}")
            if regression and simulated >= schedule.FEW_PAIRS:  # held-out pairs are simulated ones
                why = "where nothing is left to learn beyond the linear regression, training ends early"
                chosen["settle"] = self.choose("settle", max(EARLIEST_CHECK, 2 * chosen["warmup"]), why)
            chosen["weight_decay"] = self.choose("weight_decay", *self.weight_decay(rows))
        for name, value in settings_of(objective).items():
            chosen[name] = self.choose(name, value, "suits the objective")
        asked = {name: self.choose(name, None) for name in self.changes if name in training_names()}
        return TrainConfig(**{**chosen, **asked})

    def weight_decay(self, rows: int) -> tuple[float, str]:
        """Of the weights of a network that sees the data themselves."""
        hidden = self.large() or self.embedded() or self.structure.embedding
        return schedule.weight_decay(rows, 0 if hidden else self.numbers() - len(self.ignored_x))

    def emulated(self, steps: int) -> tuple[int, str]:
        """Pairs besides, where an emulator of the simulator is easy to train and the length of training is free."""
        fixed = {"max_steps", "time_limit", "devices", "standardize"} & set(self.changes)
        free = self.plain and self.prior is not None and steps != 1 and self.own_network() and not fixed
        if self.rows is None or not (free and self.vectors()):
            return 0, ""
        used = np.delete(self.rows[1].numpy(), self.ignored_x, 1)
        return schedule.emulated_pairs(self.n, used.shape[1], len(np.unique(used, axis=0)) / len(used))

    def _value(self, name: str, value: Any) -> Any:
        """What the recipe keeps of what was asked for; networks that are already built are set aside."""
        if isinstance(value, nn.Module):
            module = value.sampler if isinstance(value, Standardized) else value
            self.modules[name] = deepcopy(module)  # what the user gave is not trained in place
            return described(module)
        if name == "discrete":
            names = self.names or parameter_names(self.prior) or self.columns.names
            return places(value, names, math.prod(self.theta_shape))
        if name in PLACES:
            return as_places(value)
        return (Factory.of(value) or value) if name in ("network", "embedding", "objective") else value
