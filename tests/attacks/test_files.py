"""Some hundred damaged and hostile files: each is read or refused with a sentence (``make attacks`` reads 10 000)."""

import hashlib
import json
import os
import shutil
import zipfile

import numpy as np
import pytest
from benchmarks.attacks.files import TARGETS, attack_files, make_files
from benchmarks.attacks.outcome import Outcome

import propersbi as ps
from propersbi.app.observed import read_observation
from propersbi.diagnostics import Diagnostics
from propersbi.simulation.store import Store
from propersbi.training.checkpoint import read_checkpoint
from propersbi.types import InputError


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("original") / "run"
    make_files(folder)
    return folder


def test_damaged_files_are_read_or_refused(original, tmp_path):
    outcome = Outcome.joined(attack_files(name, original, tmp_path, 0.014) for name in TARGETS)
    assert outcome.broken == []
    assert outcome.refused > 60


def test_a_count_in_a_file_is_not_believed(original):
    with pytest.raises(InputError, match=r"incomplete: \d{7,} of its chunks"):
        Store.open(original / "simulations").rows("train", 10**9)


def test_an_archive_that_unpacks_to_more_than_it_is_is_refused(original, tmp_path):
    content = json.loads((original / "diagnostics.json").read_text())
    path = tmp_path / "diagnostics.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("shown.npy", "w") as file:
        np.lib.format.write_array(file, np.zeros(10**7))
    content["arrays"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "diagnostics.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="compressed"):
        Diagnostics.load(tmp_path)


@pytest.mark.parametrize("text", ["", " \n", "\n\n", "#", ",", "²", "9" * 5000, "a,b\n", "\x00"])
def test_strange_observations_are_sentences(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError):
        read_observation(tmp_path / "x.csv", None)


READERS = {
    "run.json": ps.report,
    "diagnostics.npz": Diagnostics.load,
    "checkpoint.ckpt": lambda folder: read_checkpoint(folder / "checkpoint.ckpt", "cpu"),
    "simulations/manifest.json": lambda folder: Store.open(folder / "simulations"),
}


@pytest.mark.parametrize("name", READERS)
def test_what_is_no_regular_file_is_refused(original, tmp_path, name):
    shutil.copytree(original, tmp_path / "r")
    (tmp_path / "r" / name).unlink()
    os.mkfifo(tmp_path / "r" / name)
    with pytest.raises(InputError, match="not a regular file"):
        READERS[name](tmp_path / "r")
