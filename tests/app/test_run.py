"""The whole pipeline from Python: it continues, it says what it did, and a task or a problem says how it is run."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi import tasks
from propersbi.app import directory
from propersbi.app.observed import read_observation
from propersbi.app.problems import load_problem
from propersbi.app.run import Run
from propersbi.diagnostics import measure
from propersbi.problem import Noise, Problem, Settings
from propersbi.simulation.store import Store
from propersbi.storage.records import RunRecord
from propersbi.types import InputError

TINY = {"draws": 3, "max_steps": 10, "refinement_steps": 1, "progress": False}


class Uniform:
    lower, upper = np.zeros(2), np.ones(2)

    def sample(self, n, rng):
        return rng.uniform(size=(n, 2))


def simulator(theta, rng):
    return theta + 0.1 * rng.normal(size=theta.shape)


def problem(**options):
    return Problem(prior=Uniform(), simulator=simulator, name="own", parameter_names=("a", "b"), **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return ps.run(problem(x_o=[0.3, 0.7]), folder=folder / "r", simulations=300, test=50, seed=3, **TINY)


def modified(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.suffix in (".safetensors", ".npz")}


def test_a_run_returns_its_posterior_its_diagnostics_and_its_report(finished):
    posterior = finished.posterior()
    assert posterior.sample((5,), x=[0.3, 0.7]).shape == (5, 2)
    assert (posterior.parameter_names, posterior.recipe.draws, posterior.history.steps) == (("a", "b"), 3, 10)
    assert isinstance(posterior.prior, Uniform)
    assert (finished.diagnostics.n, finished.diagnostics.num_samples) == (50, 250)
    page = finished.report.read_text()
    assert "300 to train on, 50 to test" in page
    assert "3 draws per pair" in page
    assert "all steps were done" in page
    assert "the problem itself" in page
    assert "propersbi.run(&#39;own&#39;, simulations=300, test=50, seed=3, draws=3" in page


def test_the_record_is_typed(finished):
    record = finished.record
    assert isinstance(record, RunRecord)
    assert (record.problem, record.simulations.n, record.simulations.seed) == ("own", 300, 3)
    assert (record.training.steps, record.training.stopped, record.training.seed) == (10, "max_steps", 3)
    assert record.training.recipe == json.loads(json.dumps(finished.posterior().recipe.to_json()))
    assert record.diagnosis.num_samples == 250


def test_calling_again_continues(finished):
    before = {path: stamp for path, stamp in modified(finished.folder).items() if path.parent.name != "posterior"}
    weights = (finished.folder / "posterior" / "weights.safetensors").read_bytes()
    again = ps.run(problem(x_o=[0.3, 0.7]), folder=finished.folder, simulations=300, test=50, seed=3, **TINY)
    assert {path: stamp for path, stamp in modified(again.folder).items() if path in before} == before
    assert (again.folder / "posterior" / "weights.safetensors").read_bytes() == weights
    opened = Run.open(finished.folder)
    assert torch.equal(
        opened.posterior().sample((4,), [0.3, 0.7], seed=1), again.posterior().sample((4,), [0.3, 0.7], seed=1)
    )


def test_another_observation_is_diagnosed_anew_and_nothing_else_is_done(finished, tmp_path):
    run = Run.open(finished.folder, problem())
    shards = modified(finished.folder / "simulations")
    checks = run.diagnose(read_observation([0.5, 0.5], None), num_samples=100, progress=False)
    assert (checks.num_samples, run.record.observation.source) == (100, "an array of shape (2,)")
    assert modified(finished.folder / "simulations") == shards


def test_what_was_diagnosed_decides_whether_it_is_done_again(finished, monkeypatch):
    def stamp():
        return (finished.folder / "diagnostics.json").stat().st_mtime_ns

    def diagnose(own=None, **options):
        before = stamp()
        Run.open(finished.folder, own).diagnose(seen, num_samples=100, progress=False, **options)
        return stamp() != before

    seen = read_observation([0.5, 0.4], None)
    assert diagnose(problem(digest="one"))
    assert not diagnose(problem(digest="one"))
    assert not diagnose()  # without the model it cannot be known to have changed
    assert diagnose(problem(digest="two"))
    assert diagnose(problem(digest="two"), max_failed=0.5)
    assert diagnose(problem(digest="two"), seed=1)
    assert not diagnose(problem(digest="two"), seed=1)
    monkeypatch.setattr(directory, "__version__", "999")
    assert diagnose(problem(digest="two"), seed=1)
    assert not diagnose(seed=1)


def test_options_of_simulations_come_from_the_problem_and_from_the_caller(tmp_path, monkeypatch):
    asked = []

    def remember(prior, simulator, n, **options):
        asked.append(options)
        raise InputError("stop here")

    monkeypatch.setattr(directory, "simulate", remember)
    own = problem(settings=Settings(timeout=5.0, max_failed=0.5))
    for options in ({}, {"timeout": 9.0, "batched": False, "on_error": "raise"}):
        with pytest.raises(InputError, match="stop here"):
            ps.run(own, folder=tmp_path / "r", progress=False, **options)
    assert (asked[0]["timeout"], asked[0]["max_failed"], asked[0]["batched"]) == (5.0, 0.5, None)
    assert "on_error" not in asked[0]
    assert (asked[1]["timeout"], asked[1]["batched"], asked[1]["on_error"]) == (9.0, False, "raise")
    assert asked[0]["parameter_names"] == ("a", "b")


def test_names_of_data_are_kept_and_observations_brought_into_their_order(tmp_path):
    own = Problem(
        prior={"a": (0.0, 1.0), "b": (0.0, 1.0)},
        simulator=lambda theta, rng: {"sum": theta.sum() + rng.normal(), "both": theta + 0.1 * rng.normal(size=2)},
        x_o={"both": [0.25, 0.5], "sum": 1.0},
    )
    run = ps.run(own, folder=tmp_path / "r", simulations=60, test=20, **TINY)
    assert run.posterior().x_names == ("sum", "both_1", "both_2")
    assert run.posterior().parameter_names == ("a", "b")
    assert run.diagnostics.arrays["x_o"].tolist() == [1.0, 0.25, 0.5]
    for other, message in (
        ({"total": 1.0}, "no number named 'sum'"),
        ({"sum": 1.0, "max": 0.0}, "a number named 'max'"),
    ):
        with pytest.raises(InputError, match=message):
            run.diagnose(read_observation({"both": [0.25, 0.5], **other}, None))


def test_a_folder_of_another_problem_is_refused(finished):
    with pytest.raises(InputError, match="is a run of 'own', not of 'two_moons'"):
        ps.run("two_moons", folder=finished.folder, **TINY)


def test_what_cannot_work_is_refused_before_anything_is_simulated(tmp_path):
    for options, message in (
        ({"drws": 3}, "did you mean 'draws'"),
        ({"rounds": 3}, "3 rounds are for one observation"),
        ({"observation": [np.nan, 1.0]}, "'observation' must be finite"),
        ({"observation": "nowhere.npy"}, "There is no file"),
        ({"tmeout": 3}, "There is no option 'tmeout'"),
    ):
        with pytest.raises(InputError, match=message):
            ps.run(problem(), folder=tmp_path / "r", progress=False, **options)
    assert not (tmp_path / "r").exists()
    with pytest.raises(InputError, match=r"'observation' must have shape \(2,\)"):
        ps.run(problem(), folder=tmp_path / "r", observation=[1.0, 2.0, 3.0], simulations=60, progress=False)
    assert not (tmp_path / "r" / "posterior").exists()


def test_steps_need_what_comes_before_them(tmp_path):
    run = Run.create(tmp_path / "r", problem(), "test")
    with pytest.raises(InputError, match="no simulations yet"):
        run.train()
    with pytest.raises(InputError, match="no posterior yet"):
        run.posterior()
    with pytest.raises(InputError, match="no diagnostics yet"):
        _ = run.diagnostics
    with pytest.raises(InputError, match="without its problem"):
        Run.open(tmp_path / "r").simulate(100)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("{broken", "not valid JSON"),
        ("[]", "must hold a JSON object"),
        ('{"format": 1, "model": "own"}', "has format 1; this version reads format 2"),
        ('{"format": 2}', "'problem' is missing"),
        ('{"format": 2, "problem": "own", "simulations": {"n": -1}}', "'simulations.n' must be a whole number"),
        ('{"format": 2, "problem": "own", "training": {"seed": 0, "steps": 1.5}}', "'training.steps' must be a whole"),
        ('{"format": 2, "problem": "own", "training": [1]}', "'training' must be an object"),
        ('{"format": 2, "problem": "own", "shell": "rm"}', "unknown entry 'shell'"),
    ],
)
def test_a_damaged_run_json_is_a_sentence(tmp_path, content, message):
    (tmp_path / "run.json").write_text(content)
    for step in (lambda: Run.open(tmp_path), lambda: ps.run(problem(), folder=tmp_path), lambda: ps.report(tmp_path)):
        with pytest.raises(InputError, match=message):
            step()


def test_rounds_from_python(tmp_path):
    own = problem(x_o=[0.3, 0.7], training={"draws": 3})
    options = {"refinement_steps": 1, "max_steps": 10, "progress": False}
    run = ps.run(own, folder=tmp_path / "r", simulations=800, rounds=2, test=50, **options)
    assert run.record.simulations.n == 800
    assert run.posterior().recipe.draws == 3
    page = run.report.read_text()
    assert "truncated" in page.lower()
    assert "Proposal and posterior of each round" in page


def test_a_task_says_how_it_is_run_unless_its_caller_says_otherwise(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "OBSERVATION_SAMPLES", 200)
    training = {"max_steps": 2, "draws": 3, "rule": {"class": "EnergyScore", "beta": 1.0}, "batch_size": 8}
    settings = Settings(simulations=60, test=30, num_samples=100)
    camera = replace(tasks.get("camera"), settings=settings, training=training)
    run = Run.create(tmp_path / "r", camera, "test")
    assert len(run.simulate(progress=False)) == 60
    posterior = run.train(draws=2, progress=False)
    assert (posterior.history.steps, posterior.recipe.draws, posterior.recipe.batch_size) == (2, 2, 8)
    assert posterior.recipe.rule == ps.EnergyScore(beta=1.0)
    checks = run.diagnose(read_observation(1, camera), progress=False)
    assert (checks.n, checks.num_samples, checks.event) == (30, 100, (28, 28))
    assert "reference" not in checks.arrays
    page = ps.report(run.folder).read_text()
    assert "Test pairs and their posteriors" in page
    assert "could not be drawn" not in page


def test_noise_of_a_problem_is_drawn_anew_in_training(tmp_path):
    sizes = []

    def noise(x):
        sizes.append(len(x))
        return x + 100.0

    moons = replace(
        tasks.get("two_moons"),
        settings=Settings(simulations=60, test=30),
        training={"max_steps": 2, "batch_size": 8},
        noise=Noise(noiseless=lambda theta: 0 * theta, add=noise),
    )
    run = Run.create(tmp_path / "r", moons, "test")
    assert not run.simulate(progress=False).x[:].any()
    posterior = run.train(progress=False)
    assert sizes.count(8) >= 2  # a batch for every step
    assert posterior.sampler.x_units.center.tolist() == [100.0, 100.0]
    _, fresh = Store.open(tmp_path / "r" / "simulations").rows("test")
    assert fresh[:].any()


def test_a_complete_recipe_replaces_the_one_of_the_problem(finished, tmp_path):
    recipe = finished.posterior().recipe
    own = problem(training={"draws": 7, "max_steps": 99}, settings=Settings(simulations=60, test=20))
    run = Run.create(tmp_path / "r", own, "test")
    run.simulate(progress=False)
    assert run.train(recipe=recipe.change(batch_size=10), progress=False).recipe.draws == 3


def test_the_network_of_shallow_water_is_built_when_it_is_trained():
    task = load_problem("shallow_water")
    changes = Run("nowhere", task).own_choices(0)
    network = changes["network"]((100,), (2, 100, 100))
    assert type(network).__name__ == "FieldGenerator"
    assert changes["rule"] == ps.EnergyScore(beta=1.0)
