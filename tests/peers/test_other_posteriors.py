"""Posteriors of sbi and BayesFlow in `diagnose`, `compare` and `report`: the blocks of the page, run in their order."""

import importlib.util
import re
from pathlib import Path

import pytest

import propersbi as ps

pytest.importorskip("sbi")
if importlib.util.find_spec("bayesflow") is None:
    pytest.skip("BayesFlow is not installed", allow_module_level=True)
PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "other_posteriors.md").read_text()
BLOCKS = re.findall(r"```(?:\{code-cell\} )?python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the blocks of the page leave, after all have run in one folder."""
    left = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        for code in BLOCKS:
            exec(code, left)
        left["folder"] = Path.cwd()
    return left


pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("folder", ["npe", "bayesflow"])
def test_their_posteriors_have_a_report(names, folder):
    page = (names["folder"] / folder / "report.html").read_text()
    assert "test pairs" in page
    checks = ps.diagnostics.Diagnostics.load(names["folder"] / folder)
    assert checks.n == 400
    assert checks.scores["energy_skill"] > 0.1  # trained shortly; the exact posterior has 0.29
    assert checks.arrays["samples"].shape[1:] == (2,)
    assert "predictive" in checks.scores


def test_all_are_compared_on_the_same_pairs(names):
    compared = ps.compare(names["candidates"], names["test"].theta, names["test"].x, progress=False)
    assert set(compared.names) == {"propersbi", "sbi", "BayesFlow"}
    exact = ps.compare({"exact": names["Exact"]()}, names["test"].theta, names["test"].x, progress=False)
    best = exact.energy.mean()
    assert (compared.energy.mean(1) > best - 0.02).all()  # a proper score: none is better than the exact posterior
    assert (compared.energy.mean(1) < best * 1.2).all()


def test_a_posterior_that_samples_by_chains(names):
    import torch
    from sbi.inference import NLE

    torch.manual_seed(0)
    theta = names["prior"].sample((1000,))
    trainer = NLE(prior=names["prior"], show_progress_bars=False)
    trainer.append_simulations(theta, names["simulator"](theta)).train(max_num_epochs=100)
    options = {"num_chains": 10, "warmup_steps": 20, "thin": 1}
    posterior = trainer.build_posterior(mcmc_method="slice_np_vectorized", mcmc_parameters=options)
    pairs = names["test"].theta[:20], names["test"].x[:20]
    found, exact = (
        ps.diagnose(one, *pairs, num_samples=100, progress=False).scores["energy_score"]
        for one in (posterior, names["Exact"]())
    )
    assert 0.9 * exact < found < 1.15 * exact
