"""The recipe: every choice of a training as one value, frozen, equal by value, JSON, with a reason for each choice.

Whoever wants another training changes a recipe and gives it to :func:`propersbi.fit`. What a recipe says for given
shapes is decided in :mod:`propersbi.choices`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

from propersbi.factories import Factory, Own
from propersbi.layouts import Layout
from propersbi.samplers.bounds import Box, Support
from propersbi.samplers.missing import Missing
from propersbi.samplers.priors import given_support
from propersbi.samplers.subset import Subset
from propersbi.storage.checks import check_number, check_whole, is_number
from propersbi.storage.config import CUSTOM, decode, encode, qualified_name
from propersbi.storage.tables import html_table
from propersbi.training.config import TrainConfig
from propersbi.types import InputError, ScoringRule

__all__ = ["Factory", "Own", "Recipe", "check_names"]

# What users of other libraries, or of older versions, may ask for, and what it is called here.
OTHER_NAMES = {
    "m": "draws",
    "steps": "refinement_steps",
    "patience": "stopping",
    "stop_after_epochs": "stopping",
    "max_num_epochs": "max_steps",
    "training_batch_size": "batch_size",
    "lr": "learning_rate",
    "density_estimator": "network",
    "embedding_net": "embedding",
    "bounds": "support",
    "loss": "rule",
    "score": "rule",
}


PLACES = ("discrete", "log_theta", "log_x", "ignored_x")  # choices that are the numbers of some columns
ELSEWHERE = ("class", "training", "reasons", "ensemble", "emulated")  # what a checkpoint knows otherwise or not at all


Maker = Callable[..., Any]


@dataclass(frozen=True)
class Recipe:
    """Every choice of a training.

    Arguments:
        network: What makes the sampler from ``(theta_shape, x_shape)``.
        embedding: What makes features of the data from ``x_shape``; ``None`` uses the data as they are.
        regression: Whether a linear regression comes first, and the network learns what it leaves over.
        refinement_steps: More than 1 train a generator that refines its draws step by step, and that many are its
            default at sampling; 1 trains one that draws in one pass.
        objective: What makes the objective from the sampler; ``None`` is the mean score by ``rule``.
        rule: The scoring rule, unless there is an ``objective``.
        draws: Draws per pair in training, at least 2, unless there is an ``objective``.
        support: The support of the parameters: a box, or another set that draws stay in.
        discrete: Which parameters (of the flattened event) are whole numbers.
        log_theta: Which parameters (of a vector) are trained as logarithms.
        log_x: Which numbers of the data (of a vector) are replaced by their logarithms.
        ignored_x: Which numbers of the data (of a vector) the network does not see.
        layout: The parts of structured data and what their axes mean; ``None`` for one vector.
        exchangeable: Whether the first axis of the data, or of which parts, counts trials whose order means nothing.
        missing: ``"exclude"`` leaves out simulations with missing entries; ``"allow"`` takes them as data, as does
            :class:`~propersbi.samplers.missing.Missing`, which hides further ones in training.
        standardize: Whether data are standardised by what is found on them; or ``(centre, scale)``.
        tail: Standardised data grow like a logarithm only beyond this many scales; ``None`` leaves them.
        batch_size: Pairs per gradient step.
        validation_fraction: Share of the pairs that are held out for validation.
        max_validation: How many of them at most.
        emulated: Pairs besides the simulations that an emulator of the simulator makes to train on.
        ensemble: Networks that are trained one after the other, with other seeds, and sampled in equal shares.
        training: The training configuration.
        reasons: Why, by the name of a choice; recipes are compared without them.
    """

    network: Factory | Own | Maker
    embedding: Factory | Own | Maker | None = None
    regression: bool = False
    refinement_steps: int = 1
    objective: Factory | Own | Maker | None = None
    rule: ScoringRule | Own | None = None
    draws: int | None = None
    support: Support = Box()  # noqa: RUF009
    discrete: tuple[int, ...] = ()
    log_theta: tuple[int, ...] = ()
    log_x: tuple[int, ...] = ()
    ignored_x: tuple[int, ...] = ()
    layout: Layout | None = None
    exchangeable: bool | tuple[str, ...] = False
    missing: str | Missing = "exclude"
    standardize: bool | tuple[Any, Any] = True
    tail: float | None = None
    batch_size: int = 256
    validation_fraction: float = 0.1
    max_validation: int = 5000
    emulated: int = 0
    ensemble: int = 1
    training: TrainConfig = TrainConfig()  # noqa: RUF009
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._check_data()
        for name in ("refinement_steps", "batch_size", "max_validation", "ensemble", "emulated"):
            object.__setattr__(self, name, check_whole(name, getattr(self, name), 0 if name == "emulated" else 1))
        if not (is_number(self.validation_fraction) and 0 < self.validation_fraction < 1):
            raise InputError(f"The validation fraction must lie in (0, 1), got {self.validation_fraction!s:.80}.")
        if self.draws is not None and not (isinstance(self.draws, int) and self.draws > 1):
            raise InputError(f"A scoring rule needs m > 1 draws, got draws = {self.draws!r:.80}.")
        if self.objective is None and (self.rule is None or self.draws is None):
            raise InputError("A recipe needs a 'rule' and 'draws', or an 'objective'.")
        if self.objective is not None and self.draws is not None:
            raise InputError("Give 'draws' to the objective itself.")
        if self.tail is not None:
            check_number("tail", self.tail, "be positive", 0)
        for name in PLACES:
            value = getattr(self, name)
            if not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in value):
                raise InputError(f"'{name}' must hold the numbers of columns, from 0, got {value!r:.80}.")

    def _check_data(self) -> None:
        """Check what is said of the data, and the reasons."""
        if not (isinstance(self.reasons, Mapping) and all(isinstance(reason, str) for reason in self.reasons.values())):
            raise InputError(f"'reasons' must be sentences by the names of choices, got {self.reasons!r:.80}.")
        for name, kind in (("support", Support | Own), ("training", TrainConfig), ("layout", Layout | None)):
            if not isinstance(getattr(self, name), kind):
                raise InputError(f"A recipe cannot have the {name} {getattr(self, name)!r:.80}.")
        for name in ("exchangeable", "standardize"):
            object.__setattr__(self, name, _as_tuple(getattr(self, name)))
        if not isinstance(self.missing, Missing) and self.missing not in ("exclude", "allow"):
            raise InputError(f"'missing' must be 'allow', 'exclude' or ps.Missing(rate), got {self.missing!r:.40}.")
        if not isinstance(self.standardize, bool) and len(self.standardize) != 2:
            raise InputError("'standardize' must be true, false or a pair (centre, scale).")

    def change(self, **changes: Any) -> Recipe:
        """The same recipe with other choices: fields of the recipe or of its training configuration, by name.

        Examples:
            >>> from propersbi.scoring import EnergyScore
            >>> recipe = Recipe(Factory("MLPGenerator"), rule=EnergyScore(), draws=10)
            >>> recipe.change(draws=20, max_steps=500).training.max_steps
            500
            >>> recipe.change(max_step=500)
            Traceback (most recent call last):
            propersbi.types.InputError: There is no option 'max_step'; did you mean 'max_steps'?
        """
        check_names(changes)
        inner = {name: value for name, value in changes.items() if name in training_names()}
        own = {name: self._as_value(name, value) for name, value in changes.items() if name not in inner}
        if own.get("objective") is not None:  # it brings its own rule and draws
            own = {"rule": None, "draws": None, **own}
        reasons = {name: reason for name, reason in self.reasons.items() if name not in changes}
        return replace(
            self,
            **own,
            training=replace(self.training, **inner),
            reasons={**reasons, **dict.fromkeys(changes, "chosen")},
        )

    def without_emulated(self, reason: str) -> Recipe:
        """The same recipe for simulations alone."""
        return replace(self, emulated=0, reasons={**self.reasons, "emulated": reason})

    def _as_value(self, name: str, value: Any) -> Any:
        """What a recipe keeps of a choice: classes of the library as factories, supports as such."""
        if name in PLACES:
            return as_places(value)
        if name != "support":
            return (Factory.of(value) or value) if name in ("network", "embedding", "objective") else value
        within = self.support.within if isinstance(self.support, Subset) else self.support
        support = Box() if value is None else given_support(value, None, within).support
        known = isinstance(support, Subset) and not support.within.bounded
        return replace(support, within=within) if known else support  # type: ignore[type-var]

    @property
    def takes_missing(self) -> bool:
        """Whether missing entries are data."""
        return self.missing != "exclude"

    def to_json(self) -> dict[str, Any]:
        """As plain data; objects of the user's own are kept by name only."""
        data: dict[str, Any] = encode(self)
        return data

    @classmethod
    def from_json(cls, data: Any) -> Recipe:
        """From what :meth:`to_json` gave; anything else is an :class:`InputError`."""
        if not isinstance(data, dict) or data.get("class") != "Recipe":
            raise InputError("This is not a recipe.")
        recipe = decode(_named(data))
        assert isinstance(recipe, cls)
        return recipe

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with to be continued; training configuration and data have their own."""
        data = self.to_json()
        return {name: data[name] for name in data if name not in ELSEWHERE}

    def __str__(self) -> str:
        return "\n".join(["Recipe", *(f"  {phrase}: {reason}" for phrase, reason in self.explained())])

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        return html_table("Recipe", ["choice", "reason"], self.explained())

    def explained(self) -> list[tuple[str, str]]:
        """Each choice in words, and its reason."""
        return [(phrase, self.reasons[name]) for name, phrase in self._phrases() if name in self.reasons]

    def _phrases(self) -> list[tuple[str, str]]:
        """Each choice in words."""
        t, steps = self.training, self.refinement_steps
        limited = isinstance(self.support, Own) or self.support.bounded
        rows = [
            ("network", f"network {_text(self.network)}"),
            ("embedding", "no embedding" if self.embedding is None else f"embedding {_text(self.embedding)}"),
            ("regression", "linear regression first" if self.regression else "no linear regression"),
            ("refinement_steps", f"{steps} refinement steps" if steps > 1 else "draws in one pass"),
            ("objective", f"objective {_text(self.objective)}"),
            ("rule", f"scoring rule {_text(self.rule)}"),
            ("draws", f"{self.draws} draws per pair"),
            ("support", f"support {self.support}" if limited else "no bounds"),
            ("discrete", f"integers at {_places(self.discrete)}" if self.discrete else "no integers"),
            ("log_theta", f"logarithms of theta at {_places(self.log_theta)}" if self.log_theta else "no logarithms"),
            ("log_x", f"logarithms of x at {_places(self.log_x)}" if self.log_x else "no logarithms"),
            ("ignored_x", f"{len(self.ignored_x)} numbers of x ignored" if self.ignored_x else "no numbers ignored"),
            ("exchangeable", "exchangeable trials" if self.exchangeable else "no exchangeable trials"),
            ("missing", "no missing entries" if self.missing == "exclude" else f"missing entries: {self.missing}"),
            ("standardize", "data standardised" if self.standardize is True else "units of the data given"),
            ("tail", "tails of the data left" if self.tail is None else f"data compressed beyond {self.tail:g} scales"),
            ("batch_size", f"{self.batch_size} pairs per step"),
            ("validation_fraction", f"{100 * self.validation_fraction:g} % of the pairs for validation"),
            ("max_validation", f"at most {self.max_validation} pairs for validation"),
            ("emulated", f"{self.emulated:,} emulated pairs besides" if self.emulated else "no emulated pairs"),
            ("ensemble", f"{self.ensemble} networks in equal shares"),
            ("max_steps", f"{t.max_steps} gradient steps"),
            ("optimizer", f"optimiser {'SOAP' if t.optimizer == 'soap' else 'AdamW'}"),
            ("learning_rate", f"learning rate {t.learning_rate:g}"),
            ("warmup", f"{t.warmup} steps of warm-up"),
            ("weight_decay", f"weight decay {t.weight_decay:.3g}" if t.weight_decay else "no weight decay"),
            ("settle", f"a first check after {t.settle} steps" if t.settle else "no early check"),
            ("validate_every", f"validation every {t.validate_every} steps"),
        ]
        shown = {name for name, _ in rows}
        others = [name for name in training_names() if name not in shown]
        return rows + [(name, f"{name.replace('_', ' ')} {getattr(t, name)}") for name in others]


def _as_tuple(value: Any) -> Any:
    """Lists and arrays as tuples, which are equal by value."""
    if isinstance(value, str) or not callable(getattr(value, "__iter__", None)):
        return value
    return tuple(_as_tuple(item) for item in value)


def training_names() -> list[str]:
    """The fields of the training configuration."""
    return [entry.name for entry in fields(TrainConfig)]


def recipe_names() -> list[str]:
    """The fields of a recipe that can be changed by name."""
    return [entry.name for entry in fields(Recipe) if entry.name not in ("training", "reasons")]


def check_names(changes: Mapping[str, Any]) -> None:
    """Refuse what is no choice of a recipe, and suggest the nearest right name."""
    known = [*recipe_names(), *training_names()]
    for name in changes:
        if name in known:
            continue
        nearest = [OTHER_NAMES[name]] if name in OTHER_NAMES else get_close_matches(name, known, n=1)
        hint = f"; did you mean '{nearest[0]}'?" if nearest else f"; there are {', '.join(sorted(known))}."
        raise InputError(f"There is no option '{name}'{hint}")


def as_places(value: Any) -> tuple[Any, ...]:
    """The numbers of some columns, also of a single one."""
    return tuple(value) if isinstance(value, Iterable) else (value,)


def _places(indices: tuple[int, ...]) -> str:
    """Numbers of parameters, the first ten of them.

    >>> _places((0, 2))
    'places 0, 2'
    """
    listed = ", ".join(map(str, indices[:10])) + (", ..." if len(indices) > 10 else "")
    return f"places {listed}" if len(indices) > 1 else f"place {listed}"


def _text(value: Any) -> str:
    if inspect.isroutine(value) or isinstance(value, type | functools.partial):
        return qualified_name(value.func if isinstance(value, functools.partial) else value)
    return str(value)


def _named(data: Any) -> Any:
    """The same data with objects of the user's own replaced by their names."""
    if isinstance(data, list):
        return [_named(item) for item in data]
    if not isinstance(data, dict):
        return data
    if data.get("class") == CUSTOM:
        return {"class": "Own", "name": str(data.get("name"))}
    return {key: _named(value) for key, value in data.items()}
