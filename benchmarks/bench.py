"""What is to be measured: specifications, their cells, and the one table of all results.

A specification (``specs/*.toml``) is a table of the paper: task x method x simulations x m x seeds. Every combination
is a *cell*, measured in a folder of its own by a process of its own (:mod:`benchmarks.cells`); what is finished is
never measured again. A cell is identified by its settings: with other settings it is another cell.
"""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import json
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from propersbi import tasks
from propersbi.storage.files import read_json, write_text
from propersbi.types import InputError

__all__ = ["Cell", "Spec", "choose_cells", "collect", "is_finished", "lock", "read_rows", "read_spec", "spec_names"]

HERE = Path(__file__).parent
SPECS, RUNS, RESULTS = HERE / "specs", HERE / "runs" / "bench", HERE / "results"
METRICS = ("c2st", "calibration_error", "r2", "nrmse", "rmse", "crps", "runtime", "stop_step")
FAMILIES = ("paper", "ours")
TASK_KEYS = {"family", "published", "task", "simulations", "seeds", "metrics", "evaluation", "training", "methods"}
SPEC_KEYS = TASK_KEYS | {"title", "reduced", "figure"}
FIGURE_KEYS = {"draw", "panels", "metric", "only", "observation"}
METHOD_KEYS = {"name", "m", "rule", "gan", "as", "more_seeds"}
EVALUATION = {"observations": 10, "draws": 10_000, "pairs": 1000, "pair_draws": 1000, "reject": False}
FIELDS = ["spec", "cell", "settings", "family", "task", "method", "m", "n", "seed", "metric", "value", "sd", "reduced"]
FIELDS += ["note", "seconds", "peak_mb", "versions", "machine", "date"]


@dataclass(frozen=True)
class Cell:
    """One training and its evaluation.

    Arguments:
        spec: The specification it belongs to.
        family: ``"paper"`` trains as the paper did, ``"ours"`` by ``ps.fit``.
        task: The benchmark problem.
        method: The name of the method, and what it trains with (``rule`` or ``gan``).
        m: Draws per pair in training.
        n: Simulations of the paper's cell; ``simulations`` are taken, fewer under a budget.
        seed: Of all random numbers.
        metrics: What to measure.
        training: How to train.
        evaluation: Observations, draws and pairs to measure on.
        seconds: The time this cell may take; ``None`` is no limit.
        changed: Names of the settings that were reduced to fit that time.
    """

    spec: str
    family: str
    task: str
    method: Mapping[str, Any]
    m: int
    n: int
    simulations: int
    seed: int
    metrics: tuple[str, ...]
    training: Mapping[str, Any]
    evaluation: Mapping[str, Any]
    seconds: float | None = None
    changed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        method = self.method["name"].lower().replace(" ", "_").replace("/", "_")
        return f"{self.task}-{method}-m{self.m}-n{self.n}-seed{self.seed}"

    @property
    def settings(self) -> str:
        """A short name for everything that determines the result."""
        content = {key: value for key, value in asdict(self).items() if key != "spec"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]

    def folder(self, runs: Path) -> Path:
        return runs / self.spec / f"{self.name}-{self.settings}"


@dataclass(frozen=True)
class Spec:
    """A specification as it was read; ``parts`` are the specifications that a figure is plotted from."""

    name: str
    content: dict[str, Any]
    parts: tuple[Spec, ...] = field(default=())

    @property
    def only(self) -> str:
        """The text that the names of a figure's cells contain."""
        return str(self.content.get("figure", {}).get("only", ""))

    def _shows(self, cell: Cell, part: Spec) -> bool:
        """Whether the cell of a part is one of its own; a figure shows the first seed."""
        return self.only in cell.name and ("figure" not in self.content or cell.seed == part.content["seeds"][0])

    def cells(self) -> list[Cell]:
        """All cells, in the order of the paper's table."""
        if self.parts:
            return [cell for part in self.parts for cell in part.cells() if self._shows(cell, part)]
        spec = self.content
        common: dict[str, Any] = {
            "spec": self.name,
            "family": spec["family"],
            "task": spec["task"],
            "metrics": tuple(spec["metrics"]),
            "training": spec.get("training", {}),
            "evaluation": {**EVALUATION, **spec.get("evaluation", {})},
        }
        return [
            Cell(method=_trained(method), m=m, n=n, simulations=n, seed=seed, **common)
            for n in spec["simulations"]
            for method in spec["methods"]
            for m in method["m"]
            for seed in [*spec["seeds"], *method.get("more_seeds", {}).get(str(n), [])]
        ]

    def within(self, seconds: float) -> list[Cell]:
        """The same cells with a time limit each, and with the smaller numbers of ``[reduced]``."""
        if self.parts:
            return [cell for part in self.parts for cell in part.within(seconds) if self._shows(cell, part)]
        smaller = self.content.get("reduced", {})
        return [_reduce(cell, smaller, seconds) for cell in self.cells()]


def _reduce(cell: Cell, smaller: Mapping[str, Any], seconds: float) -> Cell:
    """A cell with a time limit and smaller numbers.

    All scores take at most as many steps: equal numbers can be compared, equal times depend on the machine.
    """
    training = dict(smaller.get("training", {}))
    if "score_steps" in smaller and "rule" in cell.method:
        training["max_steps"] = smaller["score_steps"]
    evaluation = smaller.get("evaluation", {})
    return replace(
        cell,
        simulations=min(cell.n, smaller.get("simulations", cell.n)),
        training={**cell.training, **training},
        evaluation={**cell.evaluation, **evaluation},
        seconds=seconds,
        changed=tuple(sorted({**training, **evaluation})),
    )


def _trained(method: Mapping[str, Any]) -> dict[str, Any]:
    """What a method trains with, whatever the seed."""
    return {key: value for key, value in method.items() if key != "more_seeds"}


def choose_cells(
    spec: Spec, only: str, *, seconds: float | None, workers: int, results: Path = RESULTS, runs: Path = RUNS
) -> list[Cell]:
    """The cells whose name contains a text; those not yet measured in full share a time limit equally."""
    whole = [cell for cell in spec.cells() if only in cell.name]
    if not whole:
        raise InputError(f"No cell of '{spec.name}' has '{only}' in its name.")
    missing = {(cell.spec, cell.name) for cell in whole if not is_finished(cell, results, runs)}
    if seconds is None or not missing:
        return whole
    small = {(cell.spec, cell.name): cell for cell in spec.within(seconds * workers / len(missing))}
    return [small[key] if (key := (cell.spec, cell.name)) in missing else cell for cell in whole]


def spec_names() -> list[str]:
    return sorted(path.stem for path in SPECS.glob("*.toml"))


def read_spec(name: str) -> Spec:
    """A specification by its name or its file, checked; ``all`` has the cells of every table."""
    if name == "all":
        every = [read_spec(one) for one in spec_names()]
        return Spec(name, {"title": "every table"}, tuple(spec for spec in every if not spec.parts))
    path = Path(name) if name.endswith(".toml") else SPECS / f"{name}.toml"
    if not path.exists():
        raise InputError(f"There is no specification '{name}': choose one of {', '.join(spec_names())}, or a file.")
    try:
        content = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"'{path}' is not valid TOML: {error}.") from None
    _refuse_unknown(content, SPEC_KEYS, f"The specification '{path.stem}'")
    if "figure" in content:
        _refuse_unknown(content["figure"], FIGURE_KEYS, f"The figure of '{path.stem}'")
        if not content["figure"].get("panels"):
            raise InputError(f"The figure of '{path.stem}' has no 'panels', the tables it is drawn from.")
        return Spec(path.stem, content, tuple(read_spec(part) for part in content["figure"]["panels"]))
    _check(path.stem, content)
    return Spec(path.stem, content)


def _check(name: str, spec: dict[str, Any]) -> None:
    for key in ("title", "family", "task", "simulations", "seeds", "metrics", "methods"):
        if not spec.get(key):
            raise InputError(f"The specification '{name}' has no '{key}'.")
    if spec["family"] not in FAMILIES:
        raise InputError(f"'family' must be one of {', '.join(FAMILIES)}, got '{spec['family']}'.")
    if spec["task"] not in tasks.names():
        tasks.get(spec["task"])  # raises, with the names there are
    for metric in spec["metrics"]:
        if metric not in METRICS:
            raise InputError(f"There is no metric '{metric}': choose of {', '.join(METRICS)}.")
    for n in spec["simulations"]:
        if not (isinstance(n, int) and n >= 20):
            raise InputError(f"'simulations' must be whole numbers of at least 20, got {n}.")
    _refuse_unknown(spec.get("evaluation", {}), set(EVALUATION), f"'evaluation' of '{name}'")
    for method in spec["methods"]:
        _refuse_unknown(method, METHOD_KEYS, f"A method of '{name}'")
        _refuse_unknown(
            method.get("more_seeds", {}), {str(n) for n in spec["simulations"]}, f"'more_seeds' of '{name}'"
        )
        for m in method["m"]:
            if "gan" not in method and not (isinstance(m, int) and m > 1):
                raise InputError(f"A scoring rule needs m > 1 draws, got m = {m} for '{method['name']}' in '{name}'.")


def _refuse_unknown(content: Mapping[str, Any], allowed: set[str], what: str) -> None:
    for key in content:
        if key not in allowed:
            raise InputError(f"{what} has an unknown key '{key}': there are {', '.join(sorted(allowed))}.")


def is_finished(cell: Cell, results: Path, runs: Path) -> bool:
    """Whether a cell is measured: in its folder here, or elsewhere with its rows in the committed results."""
    if (cell.folder(runs) / "result.json").exists():
        return True
    key = (cell.spec, cell.name, cell.settings)
    return any((row["spec"], row["cell"], row["settings"]) == key for row in read_rows(results / "bench.csv"))


def collect(cells: list[Cell], results: Path, runs: Path) -> list[dict[str, str]]:
    """Add those of these cells that are finished to the table of all results, in one atomic write."""
    with lock(runs / "table.lock"):  # another run may be writing its own cells
        rows = {_key(row): row for row in read_rows(results / "bench.csv")}
        for cell in cells:
            done = cell.folder(runs) / "result.json"
            if done.exists():
                rows |= {_key(row): row for row in _rows(cell, read_json(done))}
        ordered = sorted(rows.values(), key=_order)
        text = io.StringIO()
        writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(ordered)
        write_text(results / "bench.csv", text.getvalue())
    return ordered


def _rows(cell: Cell, result: dict[str, Any]) -> Iterator[dict[str, str]]:
    common = {key: getattr(cell, key) for key in ("spec", "settings", "family", "task", "m", "n", "seed")}
    common |= {key: result[key] for key in ("reduced", "note", "seconds", "peak_mb", "versions", "machine", "date")}
    for metric, (value, sd) in result["metrics"].items():
        row = {**common, "cell": cell.name, "method": cell.method["name"], "metric": metric, "value": value, "sd": sd}
        yield {name: "" if row[name] is None else str(row[name]) for name in FIELDS}


def _key(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("spec", "cell", "settings", "metric"))


def _order(row: dict[str, str]) -> tuple[Any, ...]:
    return row["spec"], int(row["n"]), row["method"], int(row["m"]), int(row["seed"]), row["settings"], row["metric"]


def read_rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """One process at a time; the system releases the lock of a process that dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
