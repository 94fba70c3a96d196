"""README and documentation tell the truth: their Python runs (with fewer simulations and steps)."""

import re
from pathlib import Path

import numpy as np
import torch
from benchmarks import accuracy, trials

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(page=README):
    quick = [("10_000", "400"), (", 1000, seed=1", ", 60, seed=1"), ("prior=prior)", "prior=prior, max_steps=10)")]
    quick += [("prior=task.prior,", "prior=task.prior, max_steps=3,")]
    for code in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        for slow, fast in quick:
            code = code.replace(slow, fast)
        yield code


def test_the_first_three_lines_run():
    prior = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    names = {"prior": prior, "simulator": lambda theta: theta + torch.randn_like(theta), "x_o": np.zeros(2)}
    exec(next(iter(blocks())), names)
    assert names["samples"].shape == (1000, 2)


def test_the_longer_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(list(blocks())[1], names)
    assert names["samples"].shape == (1000, 2)
    assert names["many"].shape == (1000, 50, 2)
    assert "verdict" in capsys.readouterr().out
    assert (names["samples"] > 0).all()
    exec(list(blocks())[2], names)
    assert "behind the best" in capsys.readouterr().out


def test_the_guide_to_scoring_rules_runs():
    names = {}
    for code in blocks((Path(__file__).parent.parent / "docs" / "scoring.md").read_text()):
        exec(code, names)
    assert names["scores"].shape == (4,)
    assert names["posterior"].sample((3,), x=np.zeros(2)).shape == (3, 2)


def test_the_guide_to_the_baselines_runs():
    names = {}
    for code in blocks((Path(__file__).parent.parent / "docs" / "baselines.md").read_text()):
        exec(code, names)
    assert names["log_density"].shape == (100,)


def test_the_guide_to_sequential_inference_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in blocks((Path(__file__).parent.parent / "docs" / "sequential.md").read_text()):
        exec(code.replace("max_steps=60", "max_steps=6"), names)
    assert names["samples"].shape == (1000, 2)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_the_guide_to_fields_and_images_runs():
    names = {}
    for code in blocks((Path(__file__).parent.parent / "docs" / "high_dimensional.md").read_text()):
        if "reference_posterior" not in code:  # takes a minute, and has a test of its own
            exec(code.replace("20_000", "200").replace("max_steps=8000", "max_steps=3"), names)
    assert names["depth"].shape == (50, 100)
    assert names["draws"].shape == (50, 28, 28)
    assert names["posterior"].sampler.steps == 4


def test_every_link_of_the_documentation_leads_somewhere():
    root = Path(__file__).parent.parent
    for page in [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert link.startswith("https://") or (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_table_of_accuracies_is_the_one_that_was_measured():
    assert accuracy.between(README, "accuracy")[1] == accuracy.brief(accuracy.read())
    measured = accuracy.table(accuracy.read())
    assert (accuracy.RESULTS / "accuracy.md").read_text() == measured


def test_the_table_of_trials_is_the_one_that_was_measured():
    rows = trials.recorded()
    assert accuracy.between(trials.PAGE.read_text(), "trials")[1] == trials.brief(rows)
    assert (accuracy.RESULTS / "trials.md").read_text() == trials.table(rows)
