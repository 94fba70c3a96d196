"""Every plot is made from plain arrays, on its own, without changing the global state of matplotlib."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from propersbi import plots
from propersbi.plots.density import density, mass_levels
from propersbi.training.history import History
from propersbi.types import InputError

RNG = np.random.default_rng(0)


def num_axes(figure):
    assert isinstance(figure, Figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=40)
    assert buffer.tell() > 500
    return len(figure.axes)


def normal(d, m=800):
    return RNG.normal(size=(m, d))


def test_pyplot_and_backend_are_not_touched():
    code = (
        "import sys, numpy as np, matplotlib; before = dict(matplotlib.rcParams);"
        "from propersbi import plots;"
        "plots.corner(np.random.rand(300, 2), names=['a', 'b']).savefig('/dev/null', format='png');"
        "assert 'matplotlib.pyplot' not in sys.modules;"
        "assert before == dict(matplotlib.rcParams)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize(("d", "panels"), [(1, 1), (2, 3), (4, 10)])
def test_corner_has_a_panel_per_pair(d, panels):
    figure = plots.corner(normal(d), reference=normal(d), prior=3 * normal(d), truth=np.zeros(d))
    assert num_axes(figure) == panels


def test_corner_notes_the_parameters_it_hides():
    figure = plots.corner(normal(9))
    assert figure.get_supxlabel() == "the first 8 of 9 parameters"
    assert len(figure.axes) == 36


def test_corner_enlarges_thin_modes():
    angle = RNG.uniform(0, np.pi, 4000)
    crescent = 0.1 * np.stack([np.cos(angle), np.sin(angle)], 1) + 0.005 * RNG.normal(size=(4000, 2))
    both = np.concatenate([crescent - 0.8, 0.8 - crescent])
    assert num_axes(plots.corner(both, reference=both)) == 4


def test_corner_accepts_tensors_constants_and_nan():
    samples = torch.randn(500, 2)
    samples[:, 1] = 3.0
    samples[0, 0] = torch.nan
    assert num_axes(plots.corner(samples)) in (3, 4)


@pytest.mark.parametrize("names", [["$a", "b$"], ["<b>", "a & b"], [r"$\undefined$", "x" * 300], ["", "line\nbreak"]])
def test_unusual_names_are_plotted(names):
    num_axes(plots.corner(normal(2), names=names))
    num_axes(plots.ranks(RNG.integers(0, 101, (100, 2)), 100, names))
    num_axes(plots.recovery(*[normal(2, 50)] * 4, names))
    num_axes(plots.coverage([0, 0.5, 1], np.ones((3, 2)), n=100, names=names))


def test_mathematics_in_names_is_typeset():
    (axes, *_) = plots.ranks(RNG.integers(0, 101, (100, 1)), 100, [r"$\theta_1$"]).axes
    assert axes.title.get_parse_math()


def test_ranks_mark_bars_outside_the_band():
    even = np.tile(np.arange(100), 10)[:, None]
    piled = np.concatenate([even, np.zeros((100, 1), int)])
    colours = [patch.get_facecolor() for patch in plots.ranks(piled, 99).axes[0].patches if patch.get_width() < 0.1]
    assert len(set(colours)) == 2
    assert colours[0] != colours[10]


@pytest.mark.parametrize("d", [1, 3, 12])
def test_checks_have_a_panel_per_parameter(d):
    levels = np.linspace(0, 1, 11)
    shown = min(d, 8)
    assert num_axes(plots.ranks(RNG.integers(0, 101, (200, d)), 100)) == shown
    assert num_axes(plots.recovery(normal(d, 50), normal(d, 50), normal(d, 50), normal(d, 50))) == shown
    assert num_axes(plots.coverage(levels, np.tile(levels[:, None], d), n=100)) == 1
    assert num_axes(plots.coverage(levels, np.tile(levels[:, None], d), n=100, tarp=(levels, levels))) == 2


@pytest.mark.parametrize(
    "history",
    [
        {},
        {"train": {"step": [], "loss": []}},
        {"train": {"step": [1, 2], "loss": [1.0, None]}, "kept_step": 2},
        {
            "train": {"step": list(range(500)), "loss": [float(v) for v in RNG.normal(size=500)]},
            "validation": {"step": list(range(0, 500, 10)), "score": [float(v) for v in RNG.normal(size=50)]},
            "kept_step": 300,
        },
    ],
)
def test_losses_accept_any_part_of_a_history(history):
    assert num_axes(plots.losses(history)) == 1


@pytest.mark.parametrize(
    ("event", "panels"),
    [((1,), 1), ((2,), 2), ((8,), 8), ((30,), 1), ((50, 2), 2), ((2, 50), 2), ((10, 12), 8), ((3, 9, 9), 8)],
)
def test_predictive_for_vectors_series_and_images(event, panels):
    assert num_axes(plots.predictive(RNG.normal(size=(40, *event)), np.zeros(event))) == panels


def test_fields_without_truth():
    assert num_axes(plots.fields(RNG.normal(size=(20, 16, 16)))) == 6
    assert num_axes(plots.fields(np.zeros((20, 16, 16)))) == 6
    assert num_axes(plots.fields(RNG.normal(size=(20, 100)))) == 1


def test_wrong_shapes_are_reported():
    with pytest.raises(InputError, match="2 names for 3"):
        plots.corner(normal(3), names=["a", "b"])
    with pytest.raises(InputError, match="'reference' has 2 columns, expected 3"):
        plots.corner(normal(3), reference=normal(2))
    with pytest.raises(InputError, match=r"no finite rows to plot, got an array of shape \(10, 2\)"):
        plots.corner(np.full((10, 2), np.nan))
    with pytest.raises(InputError, match="do not fit"):
        plots.predictive(normal(3), np.zeros(2))


def test_density_integrates_to_one_and_levels_contain_their_mass():
    (x, y), height = density(list(normal(2, 4000).T), [(-6.0, 6.0), (-6.0, 6.0)], bins=100)
    cell = (x[1] - x[0]) * (y[1] - y[0])
    assert height.sum() * cell == pytest.approx(1, abs=1e-3)
    (level,) = mass_levels(height, [0.5])
    assert height[height >= level].sum() * cell == pytest.approx(0.5, abs=0.02)
    area = (height >= level).sum() * cell
    assert area == pytest.approx(2 * np.pi * np.log(2), rel=0.15)


def test_plotting_is_thread_safe():
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda d: num_axes(plots.corner(normal(2), names=list("ab"))), range(6))) == [3] * 6


def test_rank_lines_count_the_lines_inside_the_band():
    rng = np.random.default_rng(0)
    ranks = rng.integers(0, 101, (500, 6))
    ranks[:, 0] = rng.integers(0, 50, 500)  # always below the middle
    axes = plots.rank_lines(ranks, 100).axes[0]
    assert axes.get_title() == "5 of 6 lines inside the band"
    assert len(axes.lines) == 7


def test_waves_show_draws_and_truth_in_each_row():
    rng = np.random.default_rng(0)
    field, wave = rng.normal(size=12), rng.normal(size=(9, 12))
    rows = {name: (rng.normal(size=(5, 12)), rng.normal(size=(5, 9, 12))) for name in ("prior", "posterior")}
    figure = plots.waves((field, wave), rows, times=(2, 8))
    assert len(figure.axes) == 8
    assert len(figure.axes[0].lines) == 6
    np.testing.assert_array_equal(figure.axes[7].lines[-1].get_ydata(), wave[8])
    without_truth = plots.waves((None, wave), {"posterior": rows["posterior"]}, times=(2, 8))
    assert len(without_truth.axes[0].lines) == 5
    with pytest.raises(InputError, match=r"got \(12,\) and \(9, 11\)"):
        plots.waves((field, wave[:, 1:]), rows)


def test_rounds_show_proposal_and_posterior_of_each():
    record = {"proposal": [[-1.0, 0.0, 1.0]] * 10, "posterior": [[-0.5, 0.1, 0.6]] * 10}
    figure = plots.rounds([record] * 3)
    assert len(figure.axes) == 8
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["proposal", "posterior"]


def test_images_have_rows_for_truth_observation_and_each_method():
    truth, x = RNG.uniform(size=(4, 9, 9)), RNG.normal(size=(4, 9, 9))
    methods = {"ours": RNG.uniform(size=(6, 4, 9, 9)), "theirs": RNG.uniform(size=(3, 4, 1, 9, 9))}
    figure = plots.images(truth, x, methods)
    assert num_axes(figure) == (2 + 2 * 4) * 4
    labels = [axes.get_ylabel() for axes in figure.axes[::4]]
    assert labels[:4] == ["truth", "observed", "ours\nmean", "ours\nSD"]
    assert np.allclose(figure.axes[2 * 4].images[0].get_array(), methods["ours"].mean(0)[0])
    assert num_axes(plots.images(truth, None, methods["ours"])) == 5 * 4
    with pytest.raises(InputError, match=r"different numbers of images: \[4, 3"):
        plots.images(truth, x[:3], methods)
    with pytest.raises(InputError, match=r"'theta' must be finite images, got an array of shape \(4, 9\)"):
        plots.images(truth[0, :4], x, methods)


def test_examples_are_images_or_curves_depending_on_their_shape():
    assert (
        num_axes(plots.examples(RNG.uniform(size=(3, 9, 9)), RNG.normal(size=(3, 5)), RNG.uniform(size=(6, 3, 9, 9))))
        == 15
    )
    figure = plots.examples(RNG.normal(size=(5, 100)), None, RNG.normal(size=(20, 5, 100)))
    assert num_axes(figure) == 5
    assert len(figure.axes[0].lines) == 2


@pytest.mark.parametrize(
    ("draw", "shape"),
    [
        (lambda axes: plots.corner(normal(3), reference=normal(3), truth=np.zeros(3), axes=axes), (3, 3)),
        (lambda axes: plots.ranks(RNG.integers(0, 101, (100, 2)), 100, axes=axes), (2,)),
        (lambda axes: plots.coverage([0, 0.5, 1], [0, 0.5, 1], n=50, axes=axes), ()),
        (lambda axes: plots.predictive(normal(2), np.zeros(2), axes=axes), (2,)),
        (lambda axes: plots.recovery(*[normal(2, 50)] * 4, axes=axes), (1, 2)),
        (lambda axes: plots.losses({"train": {"step": [1, 2], "loss": [2.0, 1.0]}}, axes=axes), ()),
        (lambda axes: plots.fields(normal(60), truth=np.zeros(60), axes=axes), ()),
        (lambda axes: plots.images(np.eye(9)[None], None, RNG.uniform(size=(5, 1, 9, 9)), axes=axes), (5, 1)),
    ],
)  # fmt: skip
def test_plots_draw_in_axes_of_the_caller(draw, shape):
    figure = Figure()
    axes = figure.subplots(*shape, squeeze=False) if len(shape) == 2 else figure.subplots(*(1, *shape))
    before = len(figure.axes)
    assert draw(axes) is figure
    assert len(figure.axes) == before
    assert figure.legends == []
    assert any(panel.has_data() for panel in figure.axes)
    with pytest.raises(InputError, match=rf"has {before} panels, but 'axes' holds {before + 1}"):
        draw([*figure.axes, Figure().subplots()])


def test_losses_take_the_history_of_a_training():
    history = History()
    history.steps = 100
    history.record(loss=1.0, rate=0.1, score=0.5, excess=0.0, measures={})
    (axes,) = plots.losses(history).axes
    assert axes.lines[1].get_ydata().tolist() == [0.5]


BASELINES = Path(__file__).parent / "baselines"
LOOKED_AT = {
    "corner": lambda rng: plots.corner(
        np.concatenate([rng.normal([-1, 0, 0], 0.3, (3000, 3)), rng.normal([1, 1, 0.5], 0.4, (3000, 3))]),
        reference=rng.normal([0, 0.5, 0.2], 0.8, (6000, 3)),
        truth=[1.0, 1.0, 0.5],
        names=["rate", "scale", r"$\theta_3$"],
    ),
    "ranks": lambda rng: plots.ranks(
        np.stack([rng.integers(0, 101, 2000), rng.binomial(100, 0.5, 2000)], 1), 100, ["flat", "too wide"]
    ),
    "fields": lambda rng: plots.fields(
        np.sin(np.linspace(0, 6, 80)) + rng.normal(0, 0.2, (200, 1)), truth=np.sin(np.linspace(0, 6, 80))
    ),
}


@pytest.mark.parametrize("name", LOOKED_AT)
def test_pictures_look_as_they_did(name, tmp_path):
    """Small grey versions are compared, so that another version of a font does not matter but a lost curve does."""
    path = tmp_path / f"{name}.png"
    LOOKED_AT[name](np.random.default_rng(0)).savefig(path, dpi=40, facecolor="white")
    if os.environ.get("PROPERSBI_NEW_BASELINES"):
        BASELINES.mkdir(exist_ok=True)
        Image.open(path).convert("L").save(BASELINES / path.name, optimize=True)
    now, then = (Image.open(file).convert("L") for file in (path, BASELINES / path.name))
    assert now.size == then.size
    small = [np.asarray(image.reduce(4), dtype=float) for image in (now, then)]
    assert np.abs(small[0] - small[1]).mean() < 1.0
    assert np.abs(small[0] - small[1]).max() < 60
