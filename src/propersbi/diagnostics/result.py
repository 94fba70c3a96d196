"""The result of a diagnosis as data: numbers, arrays and sentences that can be kept, read again and drawn."""

from __future__ import annotations

import hashlib
import io
import math
import textwrap
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from propersbi.diagnostics.convergence import Convergence
from propersbi.diagnostics.headline import headline
from propersbi.diagnostics.verdicts import EXIT_CODES, Measured, Verdict, judge, overall
from propersbi.interchange import Groups, arviz_of
from propersbi.storage.checks import to_path
from propersbi.storage.files import read_bytes, read_json, write_bytes, write_json
from propersbi.storage.schema import read_as
from propersbi.storage.tables import aligned, html_table
from propersbi.types import InputError
from propersbi.typicality import Typicality

__all__ = ["Diagnostics"]

FORMAT = 3
WIDTH = 88  # of the terminal's text
METRICS = ("calibration_error", "r2", "nrmse", "rmse", "crps", "sbc_p", "rank_distance", "rank_mean", "coverage_90")
SCORES = ("energy_score", "energy_skill", "energy_skill_error", "tarp")
TABLES = ("ranks", "theta", "mean", "lower", "upper")
MAX_AXES, MAX_NUMBERS = 16, 10**8  # of one parameter
LEVELS = 51  # of the coverage curves
CURVES = ("levels", "coverage", "tarp_levels", "tarp")


@dataclass(frozen=True, eq=False, repr=False)
class Diagnostics:
    """How well a posterior does on test pairs, and what it says about an observation.

    Arguments:
        parameter_names: The measured parameters; of an event with more than 4096 coordinates, as many evenly spread.
        event: The shape of one parameter.
        n: How many test pairs.
        num_samples: Posterior draws for each of them.
        parameters: One number per parameter and metric: ``calibration_error``, ``r2``, ``nrmse``, ``rmse``, ``crps``,
            ``sbc_p``, ``rank_distance``, ``rank_mean``, ``coverage_90``.
        scores: One number per metric: ``energy_score``, ``energy_skill`` and its ``energy_skill_error``, ``tarp``
            and, where they could be measured, ``c2st``, ``predictive``, ``outside``.
        arrays: ``shown``, the indices of at most 64 parameters, and for these ``ranks``, ``theta``, ``mean``,
            ``lower`` and ``upper`` (5 % and 95 %), each ``(n, shown)``; ``levels``, ``coverage``, ``tarp_levels``,
            ``tarp``; ``prior`` draws, if it is at hand; of fields and images, for some test pairs,
            ``example_theta (k, *event)``, ``example_x`` and ``example_draws (draws, k, *event)``; for an observation
            ``x_o``, ``samples``, ``reference``, ``predictive`` and, if data are not shown as they are, ``viewed``.
        notes: What could not be done, in words.
        convergence: Whether the training had converged, if it is known.
        typicality: How like the simulations the observation is, if it is known.
    """

    parameter_names: tuple[str, ...]
    event: tuple[int, ...]
    n: int
    num_samples: int
    parameters: Mapping[str, np.ndarray]
    scores: Mapping[str, float]
    arrays: Mapping[str, np.ndarray]
    notes: tuple[str, ...] = ()
    convergence: Convergence | None = None
    typicality: Typicality | None = None

    def __repr__(self) -> str:
        return f"Diagnostics({self.overall}, {self.n} test pairs, {self.num_samples} draws each)"

    def _repr_html_(self) -> str:
        rows = [[row.name, _number(row.value), row.verdict, row.reading] for row in self.verdicts]
        title = f"Diagnostics: {self.overall}. {self.headline}"
        return html_table(title, ["metric", "value", "verdict", "how to read it"], rows, " ".join(self.notes))

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """For each metric its value, a verdict and how to read it."""
        numbers = self.n, self.num_samples, self.parameter_names, self.parameters, self.scores
        return judge(Measured(*numbers, self.arrays["tarp"], self.convergence, self.typicality))

    @property
    def overall(self) -> str:
        """The worst verdict: ``good``, ``fair`` or ``poor``."""
        return overall(self.verdicts)

    @property
    def exit_code(self) -> int:
        """How a program ends with this verdict: 0 for good, 3 for fair, 4 for poor."""
        return EXIT_CODES[self.overall]

    @property
    def headline(self) -> str:
        """What can be trusted, in words."""
        return headline(self.verdicts, self.n)

    @property
    def shown_names(self) -> list[str]:
        """The names of the parameters that ``ranks``, ``theta``, ``mean``, ``lower`` and ``upper`` are kept for."""
        return [self.parameter_names[int(index)] for index in self.arrays["shown"]]

    def summary(self) -> str:
        """A table for the terminal."""
        metrics = [["metric", "value", "verdict"], *([v.name, _number(v.value), v.verdict] for v in self.verdicts)]
        keys = ("r2", "nrmse", "calibration_error", "coverage_90", "sbc_p")
        head = ["parameter", "R2", "NRMSE", "calibration error", "90 % coverage", "SBC p"]
        table = [head, *([name, *map(_number, row)] for name, row in self.table(keys))]
        notes = [textwrap.fill(f"Note: {note}", WIDTH) for note in self.notes]
        first = textwrap.fill(f"{self.overall.upper()}: {self.headline}", WIDTH)
        parts = [first, aligned(metrics), aligned(table), *notes]
        return "\n\n".join(parts)

    def table(self, keys: tuple[str, ...], most: int = 12) -> list[tuple[str, list[float]]]:
        """A row of metrics for each parameter; of many parameters their median and their range."""
        columns = [np.asarray(self.parameters[key], dtype=float) for key in keys]
        if len(self.parameter_names) <= most:
            return [(name, [float(c[i]) for c in columns]) for i, name in enumerate(self.parameter_names)]
        statistics = (("median", np.median), ("lowest", np.min), ("highest", np.max))
        return [
            (f"{name} of {len(self.parameter_names)}", [float(statistic(c)) for c in columns])
            for name, statistic in statistics
        ]

    def to_arviz(self) -> Any:
        """The ranks of the true values for ArviZ's ``plot_ecdf_pit``, as shares of the draws, in ``prior_sbc``.

        As :meth:`Posterior.to_arviz <propersbi.Posterior.to_arviz>`, a ``DataTree`` or ``InferenceData``.
        """
        ranks = (self.arrays["ranks"] + 0.5) / (self.num_samples + 1)
        groups = Groups(self.shown_names, ranks.shape[1:])
        groups.add_draws("prior_sbc", ranks)
        return arviz_of(groups)

    def save(self, folder: str | Path) -> Path:
        """Write ``diagnostics.json`` and ``diagnostics.npz`` into the folder."""
        folder, buffer = Path(folder), io.BytesIO()
        np.savez(buffer, allow_pickle=False, **dict(self.arrays))
        content = {
            "format": FORMAT,
            "overall": self.overall,
            "headline": self.headline,
            "parameter_names": list(self.parameter_names),
            "event": list(self.event),
            "n": self.n,
            "num_samples": self.num_samples,
            "scores": {key: _strict(value) for key, value in self.scores.items()},
            "parameters": {key: [_strict(value) for value in values] for key, values in self.parameters.items()},
            "verdicts": [{**asdict(row), "value": _strict(row.value)} for row in self.verdicts],
            "notes": list(self.notes),
            "convergence": None if self.convergence is None else asdict(self.convergence),
            "typicality": None if self.typicality is None else self.typicality.to_json(),
            "arrays": hashlib.sha256(buffer.getvalue()).hexdigest(),
        }
        write_bytes(folder / "diagnostics.npz", buffer.getvalue())
        write_json(folder / "diagnostics.json", content)  # last: where it stands, the arrays stand too
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> Diagnostics:
        """Read what :meth:`save` wrote; never runs code that came with the files."""
        path = to_path("folder", folder) / "diagnostics.json"
        content = read_json(path)
        found = content.get("format") if isinstance(content, dict) else None
        if found != FORMAT:
            raise InputError(f"'{path}' has format {found!s:.20}; this version reads format {FORMAT}.")
        saved = read_as(_Saved, content, str(path))
        result = cls(
            parameter_names=saved.parameter_names,
            event=_event(saved.event),
            n=saved.n,
            num_samples=saved.num_samples,
            parameters={key: np.array(values, dtype=float) for key, values in saved.parameters.items()},
            scores={key: math.nan if value is None else value for key, value in saved.scores.items()},
            arrays=_read_arrays(path.with_suffix(".npz"), saved.arrays),
            notes=saved.notes,
            convergence=saved.convergence,
            typicality=None if saved.typicality is None else Typicality.from_json(saved.typicality),
        )
        _check(result, path)
        return result


@dataclass(frozen=True)
class _Saved:
    """What ``diagnostics.json`` holds."""

    format: int
    overall: str
    headline: str
    parameter_names: tuple[str, ...]
    event: tuple[int, ...]
    n: int
    num_samples: int
    scores: dict[str, float | None]
    parameters: dict[str, list[float | None]]
    verdicts: list[Any]
    notes: tuple[str, ...]
    convergence: Convergence | None
    typicality: dict[str, Any] | None
    arrays: str


def _event(event: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one parameter; no larger than what can be held."""
    if not event or len(event) > MAX_AXES or min(event) < 1 or math.prod(event) > MAX_NUMBERS:
        raise InputError(f"'event' cannot be a shape: {event!s:.40}.")
    return event


def _read_arrays(path: Path, checksum: str) -> dict[str, np.ndarray]:
    content = read_bytes(path)
    if hashlib.sha256(content).hexdigest() != checksum:
        raise InputError(f"'{path}' does not belong to the diagnostics.json beside it: its checksum does not fit.")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise InputError("its arrays are compressed")  # a few bytes could become gigabytes
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # archives break in many ways: zlib, lzma and the parser of headers have their own
        raise InputError(f"'{path}' is not a file of plain arrays: {str(error)[:200]}.") from None


def _check(result: Diagnostics, path: Path) -> None:
    """Whether the parts fit one another, so that their readers need not check again."""
    wrong = [*_wrong_arrays(result), *_wrong_numbers(result)]
    if wrong:
        raise InputError(f"'{path}' does not fit its arrays: '{wrong[0]}' is missing or misshapen.")


def _wrong_arrays(result: Diagnostics) -> Iterator[str]:
    """Arrays that are missing, do not hold numbers or do not have the shape that the others ask for."""
    arrays = result.arrays
    yield from (name for name in ("shown", *TABLES, *CURVES) if name not in arrays)
    yield from (name for name, array in arrays.items() if array.dtype.kind not in "fiu")
    shown = arrays.get("shown", np.empty(0))
    valid = np.arange(len(result.parameter_names))
    if shown.ndim != 1 or shown.dtype.kind not in "iu" or not shown.size or not np.isin(shown, valid).all():
        yield "shown"
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(TABLES, (result.n, shown.size))
    shapes |= {"coverage": (*arrays.get("levels", shown).shape, shown.size), "tarp": (LEVELS,), "levels": (LEVELS,)}
    draws = (name for name in ("prior", "samples", "reference") if name in arrays)
    shapes |= {name: (*arrays[name].shape[:1], *result.event) for name in draws}
    yield from (name for name, shape in shapes.items() if name in arrays and arrays[name].shape != shape)


def _wrong_numbers(result: Diagnostics) -> Iterator[str]:
    """Counts, metrics and scores that are missing or not finite."""
    yield from (name for name, count in (("n", result.n), ("num_samples", result.num_samples)) if count < 1)
    for name in METRICS:
        values = result.parameters.get(name, np.empty(0))
        if values.shape != (len(result.parameter_names),) or not np.isfinite(values).all():
            yield name
    yield from (name for name in SCORES if not math.isfinite(result.scores.get(name, math.nan)))


def _strict(value: float | None) -> float | None:
    """JSON has no word for not-a-number."""
    return None if value is None or not math.isfinite(value) else float(value)


def _number(value: float | None) -> str:
    """Three digits; a dash for what is unknown.

    >>> _number(0.12345), _number(1e-9), _number(None), _number(12345.6)
    ('0.123', '1e-09', '–', '12346')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
