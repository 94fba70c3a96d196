"""The tables of the paper by one command: what is measured, in how much time, and next to which published values."""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from benchmarks import bench, cells, figures, rendering
from benchmarks.__main__ import long_runs, main, seconds_of
from benchmarks.paper.specs import rule_of

from propersbi import Posterior, tasks
from propersbi.networks import FieldGenerator
from propersbi.scoring import EnergyScore, Patched
from propersbi.types import InputError

ROOT = Path(__file__).parent.parent.parent
TINY = """
title = "Tiny"
family = "paper"
task = "two_moons"
simulations = [200]
seeds = [0]
metrics = ["c2st", "calibration_error", "r2", "nrmse", "runtime", "stop_step"]
evaluation = { observations = 1, draws = 60, pairs = 10, pair_draws = 20, reject = true }

[training]
network = { class = "PaperMLP" }
batch_size = 20
held_out = 0.2
learning_rate = 1e-3
betas = [0.9, 0.99]
max_steps = 40
validate_every = 10
first_rise = 40
checkpoint_every = 0.0

[[methods]]
name = "Energy"
m = [3]
rule = { class = "EnergyScore" }

[[methods]]
name = "Kernel"
m = [3]
rule = { class = "KernelScore" }
"""


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


def written(tmp_path, text):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    return str(path)


def results(folder):
    """The table without what depends on the clock and the machine."""
    rows = bench.read_rows(folder / "bench.csv")
    return [
        {key: value for key, value in row.items() if key not in ("seconds", "peak_mb")}
        for row in rows
        if row["metric"] != "runtime"
    ]


def test_a_killed_run_completes_with_the_same_table(tiny, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    tiny_cells = bench.read_spec(str(tiny)).cells()
    for cell in tiny_cells:
        cells.measure(cell, whole / "runs", progress=False)
    bench.collect(tiny_cells, whole, whole / "runs")

    places = ["--runs", str(cut / "runs"), "--results", str(cut), "--workers", "2"]
    command = [sys.executable, "-m", "benchmarks", "run", str(tiny), *places]
    first = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    checkpoint = tiny_cells[0].folder(cut / "runs") / "checkpoint.ckpt"
    while not checkpoint.exists() and first.poll() is None:
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert not (tiny_cells[0].folder(cut / "runs") / "result.json").exists()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(results(cut)) == 2 * 5
    assert results(cut) == results(whole)

    before = (cut / "bench.csv").read_bytes()
    assert main(["run", str(tiny), *places]) == 0  # nothing is left to do
    assert (cut / "bench.csv").read_bytes() == before


def test_a_budget_reduces_cells_and_says_so(tiny, tmp_path):
    spec = bench.read_spec(str(tiny))
    (cell, _) = bench.choose_cells(spec, "", seconds=0.2, workers=1, results=tmp_path, runs=tmp_path)
    result = cells.measure(cell, tmp_path, progress=False)
    assert result["reduced"]
    assert "at most" in result["note"]
    assert 0 < result["metrics"]["stop_step"][0] < 40
    rows = bench.collect([cell], tmp_path, tmp_path)
    assert {row["reduced"] for row in rows} == {"True"}
    assert "†" in rendering.write_tables(spec, tmp_path)
    assert cell.settings != spec.cells()[0].settings  # the whole cell is still to be measured
    assert not bench.is_finished(spec.cells()[0], tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("seeds = [0]", "sedes = [0]"), "unknown key 'sedes'"),
        (('task = "two_moons"', 'task = "three_moons"'), "no task 'three_moons'"),
        (("m = [3]", "m = [1]"), "needs m > 1 draws, got m = 1"),
        (('"c2st"', '"c3st"'), "no metric 'c3st'"),
        (('family = "paper"', 'family = "theirs"'), "'family' must be one of"),
        (("pairs = 10", "pears = 10"), "unknown key 'pears'"),
        (("simulations = [200]", "simulations = [3]"), "at least 20, got 3"),
        (("seeds = [0]", "seeds = ["), "not valid TOML"),
        (("m = [3]", "m = [3]\nmore_seeds = { 100 = [1] }"), "unknown key '100': there are 200"),
    ],
)
def test_bad_specifications_get_a_sentence(tmp_path, capsys, change, sentence):
    assert main(["run", written(tmp_path, TINY.replace(*change))]) == 2
    assert sentence in capsys.readouterr().err


def test_a_method_can_have_more_seeds_at_some_numbers_of_simulations(tiny, tmp_path):
    one = bench.read_spec(str(tiny)).cells()
    text = TINY.replace("[200]", "[200, 400]").replace("m = [3]", "m = [3]\nmore_seeds = { 200 = [1, 2] }", 1)
    more = bench.read_spec(written(tmp_path, text)).cells()
    names = {(cell.method["name"], cell.n, cell.seed) for cell in more}
    assert names == {("Energy", 200, seed) for seed in (0, 1, 2)} | {
        ("Energy", 400, 0),
        ("Kernel", 200, 0),
        ("Kernel", 400, 0),
    }
    assert {cell.settings for cell in one} <= {cell.settings for cell in more}  # what was measured stays measured


def test_adversarial_training_of_full_size_is_announced():
    cells = [cell for cell in bench.read_spec("two_moons-paper").cells() if cell.n == 1000]
    assert "hours" in long_runs(cells)
    assert long_runs(cells).endswith("reduces it: two_moons-gan-m1-n1000-seed0.\n")
    assert not long_runs([cell for cell in cells if "gan" not in cell.method])
    assert not long_runs(bench.read_spec("two_moons-paper").within(60))


def test_other_mistakes_get_a_sentence(tiny, capsys):
    for arguments, sentence in (
        (["run", "nothing"], "no specification 'nothing'"),
        (["run"], "Say which specification"),
        (["run", str(tiny), "--budget", "soon"], "'--budget' must be a time"),
        (["run", str(tiny), "--only", "x"], "No cell of 'tiny' has 'x'"),
        (["run", str(tiny), "--workers", "0"], "'--workers' must be at least 1"),
        (["figure", str(tiny)], "is a table, not a figure"),
    ):
        assert main(arguments) == 2
        assert sentence in capsys.readouterr().err
    assert (seconds_of("90s"), seconds_of("30m"), seconds_of("1.5h")) == (90, 1800, 5400)


def test_every_specification_is_sound(capsys):
    assert main(["list"]) == 0
    assert "27 cells measured" in capsys.readouterr().out
    for name in bench.spec_names():
        spec = bench.read_spec(name)
        names = [(cell.spec, cell.name) for cell in spec.cells()]
        assert len(set(names)) == len(names)
        for cell in spec.within(60.0):
            assert cell.simulations <= cell.n
            assert ("network" in cell.changed) == (cell.spec == "shallow_water-paper")
            if "rule" in cell.method:
                assert callable(rule_of(cell.method["rule"], tasks.get(cell.task).theta_shape))
            if cell.family == "paper" and not spec.parts:
                assert rendering.published_values(spec), name
    rule = rule_of(bench.read_spec("shallow_water-paper").content["methods"][2]["rule"], (100,))
    assert rule == Patched(EnergyScore(), size=20, step=10, weight=5 / 81)


def test_all_tables_share_the_time_that_finished_cells_do_not_need(tmp_path):
    spec, places = bench.read_spec("all"), {"results": bench.RESULTS, "runs": tmp_path}
    assert {cell.spec for cell in spec.cells()} == {name for name in bench.spec_names() if "figure" not in name}
    chosen = bench.choose_cells(spec, "", seconds=3600.0, workers=2, **places)
    limited = [cell for cell in chosen if cell.seconds is not None]
    assert 0 < len(limited) < len(chosen)
    assert sum(cell.seconds for cell in limited) == pytest.approx(7200)
    again = bench.choose_cells(spec, "", seconds=3600.0, workers=2, **places)
    assert [cell.settings for cell in again] == [cell.settings for cell in chosen]  # a second run continues the first


def test_committed_results_belong_to_the_present_cells():
    """A cell is identified by its settings: were they changed by accident, its results would be lost."""
    settings = {
        (cell.spec, cell.name, cell.settings) for name in bench.spec_names() for cell in bench.read_spec(name).cells()
    }
    rows = [row for row in bench.read_rows(bench.RESULTS / "bench.csv") if row["reduced"] != "True"]
    assert len(rows) > 100
    assert {(row["spec"], row["cell"], row["settings"]) for row in rows} <= settings


def row(**changed):
    one = {**dict.fromkeys(bench.FIELDS, ""), "spec": "slcp-paper", "method": "Energy", "m": "20", "n": "1000"}
    one |= {"seed": "0", "metric": "c2st", "value": "0.9", "reduced": "False", "seconds": "10", "cell": "c"}
    return {**one, **changed}


def write(folder, rows):
    with (folder / "bench.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, bench.FIELDS)
        writer.writeheader()
        writer.writerows(rows)


def test_tables_show_published_values_in_three_formats(tmp_path):
    write(
        tmp_path,
        [row(), row(seed="1", value="0.92"), row(cell="d", m="3", value="0.985", reduced="True", note="few steps")],
    )
    text = rendering.write_tables(bench.read_spec("slcp-paper"), tmp_path)
    line = next(line for line in text.splitlines() if line.startswith("| 1,000 |"))
    assert ".910 ± .014 / .99 ± .01 (-.080) ▲" in line
    assert ".985† / .99 ± .01 (-.005) |" in line
    assert "— / .97" in line  # the GAN is not measured
    assert text.splitlines()[-1] == "- † d: few steps."
    tex, page = ((tmp_path / "tables" / f"slcp-paper.{kind}").read_text() for kind in ("tex", "html"))
    assert r".910 $\pm$ .014 / .99 $\pm$ .01 (-.080) $\uparrow$" in tex
    assert tex.count(r"\begin{tabular}") == tex.count(r"\end{tabular}") == 6
    assert '<td class="better">.910 ± .014 ▲<small>.99 ± .01 (-.080)</small></td>' in page
    assert page.count("<tr>") == 6 * 4


def test_scores_take_equally_many_steps_under_a_generous_budget():
    cells = bench.read_spec("camera-paper").within(seconds=1e6)
    steps = {cell.method["name"]: cell.training["max_steps"] for cell in cells}
    assert steps.pop("GAN") == 10_000
    assert set(steps.values()) == {600}
    assert all("max_steps" in cell.changed for cell in cells if "rule" in cell.method)


def test_a_complete_measurement_is_preferred_to_a_reduced_one(tmp_path):
    rows = [row(value="0.7", reduced="True", seconds="99"), row(value="0.9"), row(value="0.6", reduced="True")]
    cell = next(cell for cell in bench.read_spec("slcp-paper").cells() if cell.m == 20)
    found = rendering.entry(cell, "c2st", rows, {})
    assert found.values == (0.9,)
    assert not found.reduced
    assert rendering.Entry("r2", (0.5,), 0.3).verdict == "better"
    assert rendering.Entry("c2st", (0.5,), 0.51).verdict == ""
    assert rendering.Entry("nrmse", (0.2,), 0.1).verdict == "worse"
    assert rendering.Entry("c2st", (0.1999,), 0.2).text == ".200 / .20 (.000)"
    assert rendering.Entry("nrmse", (0.05,), 0.0501).text == ".0500 / .0501 (-.0001)"
    assert rendering.Entry("c2st", (), 1.0).text == "— / 1.00"
    assert rendering.Entry("c2st", (0.8,), 0.85, sd=0.03).text == ".800 / .85 ± .03 (-.050)"


def test_a_table_of_one_number_has_a_row_for_each_method(tmp_path):
    (grid,) = rendering.grids(bench.read_spec("shallow_water-paper"), tmp_path)
    assert [name for name, _ in grid.rows][:3] == ["GAN", "Energy", "Energy 20/10"]
    assert dict(grid.rows)["Energy 20/10"][0].text == "— / .0501 ± .01"


def test_figures_show_measured_and_published(tmp_path):
    write(tmp_path, [row(), row(n="10000", value="0.8"), row(n="100000", value="0.7")])
    spec = bench.read_spec("figure-c2st-paper")
    curves = figures.lines(spec.parts[0], "c2st", tmp_path)
    assert [e.values for _, e in curves["Energy", 20]] == [(0.9,), (0.8,), (0.7,)]
    assert [e.published for _, e in curves["GAN", 1]] == [0.97, 0.94, 0.92]
    (path,) = figures.plot(spec, tmp_path)
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("kind", "task", "names"),
    [
        ("pairs", "two_moons", ["fig-two_moons-energy-m3-n200-seed0"]),
        ("ranks", "two_moons", ["fig-two_moons-energy-m3-n200-seed0", "fig-two_moons-energy-m3-n200-seed0-lines"]),
        ("ranks", "shallow_water", ["fig-shallow_water-energy-m3-n24-seed0-lines"]),
        ("waves", "shallow_water", ["fig"]),
        ("images", "camera", ["fig"]),
    ],
)
def test_figures_of_trained_posteriors(tmp_path, kind, task, names):
    text = TINY.replace("two_moons", task)
    if task != "two_moons":
        network = {"shallow_water": '"PaperShallowWater", width = 2', "camera": '"PaperCamera"'}[task]
        text = text.replace('"PaperMLP"', network)
        text = text.replace('"c2st", ', "").replace("[200]", "[24]").replace("= 40", "= 2").replace("reject = true", "")
        text = text.replace("pair_draws = 20, ", "pair_draws = 4")
    (tmp_path / "tiny.toml").write_text(text)
    figure = tmp_path / "fig.toml"
    only = 'only = "energy-m3-", observation = 2'
    figure.write_text(f'title = "Figure"\nfigure = {{ draw = "{kind}", panels = ["{tmp_path}/tiny.toml"], {only} }}')
    spec = bench.read_spec(str(figure))
    (cell,) = spec.cells()
    with pytest.raises(InputError, match="was trained here yet: `python -m benchmarks run fig`"):
        figures.plot(spec, tmp_path, tmp_path / "runs")
    cells.measure(cell, tmp_path / "runs", progress=False)
    paths = figures.plot(spec, tmp_path, tmp_path / "runs")
    assert [path.stem for path in paths] == names
    assert all(path.stat().st_size > 3_000 for path in paths)
    places = ["--results", str(tmp_path), "--runs", str(tmp_path / "runs")]
    assert main(["figure", str(figure), "--only", "kernel", *places]) == 2  # instead of those of the figure


def test_our_cells_are_trained_as_the_task_is_run(tmp_path):
    path = tmp_path / "ours.toml"
    path.write_text("""
title = "Ours"
family = "ours"
task = "shallow_water"
simulations = [24]
seeds = [0]
metrics = ["r2", "stop_step"]
evaluation = { pairs = 6, pair_draws = 4 }
training = { max_steps = 2 }
methods = [{ name = "default", m = [3] }]
""")
    (cell,) = bench.read_spec(str(path)).cells()
    assert cells.measure(cell, tmp_path, progress=False)["metrics"]["stop_step"] == [2, None]
    posterior = Posterior.load(cell.folder(tmp_path) / "posterior")
    assert isinstance(posterior.sampler.sampler, FieldGenerator)
    assert posterior.recipe.draws == 3
    (store,) = (tmp_path / "simulations").glob(
        "*-noiseless"
    )  # noise is not part of the data, but drawn for every batch
    assert store.is_dir()


def test_bad_figures_get_a_sentence(tmp_path, capsys):
    for text, sentence in (
        ('{ draw = "dots", panels = ["slcp-ours"] }', "'draw' of 'bad' must be one of lines, pairs"),
        ('{ metric = "c2st" }', "The figure of 'bad' has no 'panels'"),
        ('{ metric = "c2st", panes = [] }', "unknown key 'panes'"),
    ):
        assert main(["figure", written(tmp_path, f'title = "Bad"\nfigure = {text}')]) == 2
        assert sentence in capsys.readouterr().err


def test_published_values():
    rows = bench.read_rows(bench.HERE / "published.csv")
    found = {
        (r["family"], r["task"], r["method"], int(r["m"]), int(r["n"]), r["metric"]): float(r["value"]) for r in rows
    }
    assert len(found) == len(rows) == 551  # every row parses, none is there twice
    for r in rows:
        assert r["table"]
        assert r["source"]
        assert r["task"] in tasks.names()
        assert r["metric"] in bench.METRICS
        assert not r["sd"] or float(r["sd"]) >= 0
        assert ("repository" in r["source"]) == (r["family"] == "2024" or len(r["value"].partition(".")[2]) > 2), r
    for key, value in {
        ("2022", "slcp", "GAN", 1, 1000, "c2st"): 0.97,
        ("2022", "slcp", "Energy", 20, 100_000, "c2st"): 0.95,
        ("2022", "slcp", "Kernel", 3, 1000, "c2st"): 1.0,
        ("2022", "slcp", "Kernel", 20, 10_000, "calibration_error"): 0.16,
        ("2022", "slcp", "Energy", 20, 1000, "r2"): 0.18,
        ("2022", "slcp", "Energy", 20, 1000, "nrmse"): 0.25,
        ("2022", "two_moons", "Kernel", 3, 1000, "r2"): 0.48,
        ("2022", "slcp", "Kernel", 3, 100_000, "stop_step"): 1600,
        ("2022", "slcp", "GAN", 1, 100_000, "runtime"): 30963,
        ("2022", "two_moons", "Energy", 20, 10_000, "c2st"): 0.74,
        ("2022", "two_moons", "Kernel", 20, 1000, "c2st"): 0.96,
        ("2022", "two_moons", "Energy", 20, 100_000, "runtime"): 10805,
        ("2022", "shallow_water", "Energy 20/10", 10, 100_000, "nrmse"): 0.0501,
        ("2022", "shallow_water", "Kernel", 10, 100_000, "calibration_error"): 0.1146,
        ("2022", "camera", "Kernel 14/7", 10, 800_000, "r2"): -144.56,
        ("2024", "gaussian_linear", "Energy", 20, 100_000, "crps"): 0.268,
        ("2024", "bernoulli_glm", "Kernel", 20, 1000, "c2st"): 0.99,
    }.items():
        assert found[key] == value, key


def test_draws_outside_the_prior_are_resampled(tiny):
    cell, task = bench.read_spec(str(tiny)).cells()[0], tasks.get("two_moons")
    pairs = cells.simulate(cell, task, tiny.parent, False)
    posterior = cells.train(cell, task, pairs, None, False, max_steps=1)
    posterior.sampler.theta_units.scale.fill_(10.0)  # most draws now lie outside
    samples, inside = cells.sample(cell, task, posterior, pairs.x[:2], 200, 0)
    assert samples.shape == (200, 2, 2)
    assert inside.mean() > 0.3
    assert (np.abs(samples[inside]) <= 1).all()
    assert (inside == (np.abs(samples) <= 1).all(-1)).all()
