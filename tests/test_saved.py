"""Posteriors of every kind, saved by every released format, are loaded and draw what they drew."""

import json
import warnings

import numpy as np
import pytest

import propersbi as ps
from propersbi.posterior_formats import FORMAT
from tests.saved import FOLDER, KINDS

SAVED = sorted(path.parent for path in FOLDER.glob("*/*/config.json"))


@pytest.mark.parametrize("folder", SAVED, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_it_is_loaded_and_draws_what_it_drew(folder):
    posterior = ps.Posterior.load(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ps.UnlikeSimulations)
        draws = posterior.sample((3,), seed=7, show_progress_bars=False)
    np.testing.assert_allclose(draws, json.loads((folder / "draws.json").read_text()), rtol=1e-3, atol=1e-4)


def test_every_kind_of_the_present_format_is_there_and_small():
    present = {path.name: path for path in SAVED if path.parent.name == str(FORMAT)}
    assert set(present) == set(KINDS)
    sizes = {name: sum(file.stat().st_size for file in path.iterdir()) for name, path in present.items()}
    assert max(sizes.values()) < 150_000, sizes


def test_the_format_of_each_is_that_of_its_folder():
    for folder in SAVED:
        assert json.loads((folder / "config.json").read_text())["format"] == int(folder.parent.name)
