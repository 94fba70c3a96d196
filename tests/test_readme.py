"""README and documentation tell the truth: their Python runs (with fewer simulations and steps)."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from benchmarks import accuracy, trials

import propersbi as ps
from propersbi.app.cli import app

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
BUILT = ("_build", "_cache")
DOCS = [page for page in sorted((ROOT / "docs").rglob("*.md")) if not set(BUILT) & set(page.parts)]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
QUICK = [
    (r"10_000", "400"),
    (r"20_000", "200"),
    (r"emulated=100_000", "emulated=5"),
    (r", 1000, seed=1", ", 60, seed=1"),
    (r"(ps\.(?:fit|recipe)\([^\n]*prior=(?:task\.)?prior)", r"\1, max_steps=4"),
    (r"ps\.run\(problem", "ps.run(problem, max_steps=4, test=50"),
    (r"max_steps=(60|8000)", "max_steps=4"),
    (r"time_limit=600\)  # ten", "max_steps=2, simulations=200)  # ten"),
]


def blocks(text, language="python"):
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def run(codes, names=None):
    """Run some blocks one after the other, each made quick, and return the names they leave."""
    names = {} if names is None else names
    for code in codes:
        for slow, fast in QUICK:
            code = re.sub(slow, fast, code)
        exec(code, names)
    return names


def guide(name):
    return blocks((ROOT / "docs" / name).read_text())


def test_the_first_three_lines_run():
    prior = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    names = {"prior": prior, "simulator": lambda theta: theta + torch.randn_like(theta), "x_o": np.zeros(2)}
    run(blocks(README)[:1], names)
    assert names["samples"].shape == (1000, 2)


def test_the_longer_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fitting, comparing, running, *recipes = blocks(README)[1:]
    names = run([fitting])
    assert names["samples"].shape == (1000, 2)
    assert names["many"].shape == (1000, 50, 2)
    assert "verdict" in capsys.readouterr().out
    assert (names["samples"] > 0).all()
    run([comparing], names)
    assert "behind the best" in capsys.readouterr().out
    run([running], names)
    assert names["run"].report.exists()
    assert "alpha" in capsys.readouterr().out
    run(recipes, names)
    assert "10 draws per pair: more draws did not help" in capsys.readouterr().out
    assert names["posterior"].recipe.ensemble == 3


def test_the_recipe_that_is_shown_is_the_one_that_is_printed():
    pairs = torch.rand(10_000, 2)
    prior = [torch.distributions.Uniform(0.0, 1.0), torch.distributions.Exponential(1.0)]
    printed = str(ps.recipe(pairs, pairs, prior=prior)).splitlines()
    shown = [line for line in blocks(README, "text")[0].splitlines() if line.strip() != "..."]
    assert shown == [line for line in printed if "support" not in line and "scales" not in line]


def test_the_guide_to_scoring_rules_runs():
    names = run(guide("scoring.md"))
    assert names["scores"].shape == (4,)
    assert names["posterior"].sample((3,), x=np.zeros(2)).shape == (3, 2)


def test_the_guide_to_the_baselines_runs():
    assert run(guide("baselines.md"))["log_density"].shape == (100,)


def test_the_guide_to_sequential_inference_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = run(guide("sequential.md"))
    assert names["samples"].shape == (1000, 2)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_the_guide_to_fields_and_images_runs():
    # the reference posterior takes a minute, and has a test of its own
    names = run(code for code in guide("high_dimensional.md") if "reference_posterior" not in code)
    assert names["depth"].shape == (50, 100)
    assert names["draws"].shape == (50, 28, 28)
    assert names["posterior"].recipe.refinement_steps == 4


def simple_model():
    prior = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    return {"ps": ps, "prior": prior, "simulator": lambda theta: theta + torch.randn_like(theta)}


def test_the_guide_to_online_training_runs():
    assert run(guide("online.md"), simple_model())["posterior"].theta_shape == (2,)


def test_the_guide_to_clusters_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run(guide("clusters.md"), simple_model())
    names["cluster"].close()
    assert len(names["sims"]) == 400


@pytest.mark.parametrize("kind", ["series", "sets", "missing", "images", "parts"])
def test_the_guides_to_structured_data_run(kind):
    names = run(guide(f"how_to_{kind}.md"))
    assert names["posterior"].recipe.embedding is not None
    assert len(next(names[name] for name in ("samples", "three") if name in names)) == 1000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_of_the_documentation_leads_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert link.startswith("https://") or (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_that_is_shown_can_be_parsed(page):
    commands = typer.main.get_command(app).commands
    for line in "\n".join(blocks(page.read_text(), "sh")).splitlines():
        if line.startswith("propersbi "):
            name, *arguments = shlex.split(line, comments=True)[1:]
            commands[name].make_context(name, arguments)


def test_the_citation_names_the_version():
    assert f"version: {ps.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_table_of_accuracies_is_the_one_that_was_measured():
    assert accuracy.between(README, "accuracy")[1] == accuracy.brief(accuracy.read())
    measured = accuracy.table(accuracy.read())
    assert (accuracy.RESULTS / "accuracy.md").read_text() == measured


def test_the_table_of_trials_is_the_one_that_was_measured():
    rows = trials.recorded()
    assert accuracy.between(trials.PAGE.read_text(), "trials")[1] == trials.brief(rows)
    assert (accuracy.RESULTS / "trials.md").read_text() == trials.table(rows)
