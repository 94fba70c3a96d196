"""Models as scientists write them, each run as a whole with a tiny budget: shapes, names, support, and a true verdict.

So few simulations and steps show nothing: whatever the posterior is, its verdict must not be "good".
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.diagnostics import measure, predictive

MODELS = Path(__file__).parent / "models"
BUDGET = {"simulations": 200, "test": 30, "max_steps": 20, "draws": 4, "refinement_steps": 1, "progress": False}


def between(*ends):
    """Whether all draws lie between the ends of their columns."""
    low, high = np.array(ends, dtype=float).T
    return lambda draws: ((draws >= low) & (draws <= high)).all()


def on_simplex(draws):
    return (draws >= 0).all() and np.allclose(draws.sum(1), 1, atol=1e-5)


def in_order(draws):
    return (np.diff(draws, axis=1) >= 0).all() and (draws >= 0).all() and (draws <= 1).all()


def whole(draws):
    return (draws == np.round(draws)).all() and (draws >= 0).all()


INFINITE = np.inf
EXPECTED = {  # parameter names, shape of the data, whether draws lie in the support
    "batched_torch": (("a", "b", "c"), (4,), lambda draws: True),
    "callable_class": (("east", "north"), (4,), between((-1, 1), (-1, 1))),
    "dict_result": (("shape", "scale"), (5,), between((0.5, 5), (0.5, 3))),
    "dirichlet": (("red", "green", "blue"), (3,), on_simplex),
    "failing": (("stiffness", "damping"), (8,), between((0, 1), (0, 1))),
    "hanging": (("position",), (3,), between((0, 1))),
    "named_arguments": (("growth", "capacity"), (8,), between((0, INFINITE), (50, 150))),
    "numpy_with_torch_prior": (("frequency", "amplitude"), (12,), between((0.5, 2), (0, INFINITE))),
    "ordered": (("first", "second"), (20,), in_order),
    "other_program": (("height", "drag"), (5,), between((5, 20), (0, 2))),
    "poisson_count": (("animals",), (4,), whole),
    "printing": (("slope", "intercept"), (6,), between((0, 1), (-1, 1))),
    "scalar_result": (("theta_1",), (1,), between((0, 3))),
    "sir_ode": (("beta", "gamma"), (10,), between((0, INFINITE), (0.05, 0.3))),
    "table_result": (("mean", "sd"), (3,), between((-1, 1), (0.5, 2))),
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a model of this folder with the tiny budget."""
    monkeypatch.setattr(measure, "OBSERVATION_SAMPLES", 500)
    monkeypatch.setattr(predictive, "PREDICTIVE_DATA", 50)
    torch.set_num_threads(1)

    def run_model(name, **options):
        return ps.run(MODELS / f"{name}.py", folder=tmp_path / name, **{**BUDGET, **options})

    return run_model


def test_every_model_is_run():
    assert {path.stem for path in MODELS.glob("*.py")} - {"__init__"} == set(EXPECTED)


@pytest.mark.filterwarnings("ignore:.* simulations .* failed and are excluded:UserWarning")
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_model_runs_from_file_to_report(name, run):
    names, x_shape, inside = EXPECTED[name]
    done = run(name)
    posterior, checks = done.posterior(), done.diagnostics
    assert posterior.parameter_names == checks.parameter_names == names
    assert posterior.x_shape == x_shape
    draws = posterior.sample((1000,), x=checks.arrays["x_o"]).numpy()
    assert draws.shape == (1000, len(names))
    assert inside(draws)
    assert inside(checks.arrays["samples"])
    assert checks.exit_code in (3, 4)
    assert "at face value: " not in checks.headline
    assert checks.typicality is None or not checks.typicality.unlike
    assert bool(done.record.simulations.failed) == (name in ("failing", "hanging"))
    assert json.loads((done.folder / "report.json").read_text())["exit_code"] == checks.exit_code
    assert "predictive" in checks.arrays, checks.notes
    page = done.report.read_text()
    assert all(name in page for name in names)
