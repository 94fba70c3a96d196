"""Several devices: two processes on CPUs train as one does, and end together."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.training import together

HOME = Path(__file__).parents[2]


def start(what, folder, devices=2):
    command = [sys.executable, "-m", "tests.training.together", what, str(folder), str(devices)]
    return subprocess.Popen(command, cwd=HOME, stderr=subprocess.PIPE, text=True)


def test_two_processes_train_as_one_does_by_every_objective_and_read_their_rows_only(tmp_path):
    process = start("train", tmp_path)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    first, second = (np.load(tmp_path / f"rank-{rank}.npz") for rank in (0, 1))
    for name in together.OBJECTIVES:
        alone, _ = together.train_one(name, 1)
        np.testing.assert_array_equal(first[name], second[name])
        np.testing.assert_allclose(first[name], alone, rtol=1e-6, atol=1e-9)
    steps = {"score": 8, "likelihood": 8, "adversarial": 16}  # each objective begins with a look at a whole batch
    for rank, rows in ((0, 17), (1, 16)):
        assert (tmp_path / f"read-{rank}").read_text() == str({33 + rows * count for count in steps.values()})
    continued, _ = together.train_one("score", 1, checkpoint=tmp_path / "half.ckpt")
    np.testing.assert_allclose(continued, first["score"], rtol=1e-6, atol=1e-9)


def test_two_processes_train_online_as_one_does(tmp_path):
    process = start("online", tmp_path)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    first, second = (np.load(tmp_path / f"online-{rank}.npy") for rank in (0, 1))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, together.online(tmp_path, 1), rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_a_process_that_is_killed_ends_the_other_and_one_device_continues(tmp_path):
    checkpoint = tmp_path / "run" / "checkpoint.ckpt"
    for rank in (1, 0):
        before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        process = start("fit", tmp_path)
        while process.poll() is None and (not checkpoint.exists() or checkpoint.stat().st_mtime_ns == before):
            time.sleep(0.02)
        assert process.poll() is None, process.communicate()[1]
        os.kill(int((tmp_path / f"pid-{rank}").read_text()), signal.SIGKILL)
        _, error = process.communicate(timeout=120)
        assert process.returncode != 0
        assert "Another process of this training has ended, and so does this one." in error
    assert not (tmp_path / "run" / "posterior").exists()
    posterior = together.fit(tmp_path, 1, steps=100)
    assert posterior.history.steps >= 20
    assert (tmp_path / "run" / "posterior").exists()
