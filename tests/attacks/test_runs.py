"""Attacks on run directories: two processes in one, a changed model, leftovers."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

import propersbi as ps
from propersbi.app.cli import app
from propersbi.storage.locks import Lock
from propersbi.types import InputError

MODEL = """
import numpy as np
prior = (np.zeros(1), np.ones(1))
def simulator(theta, rng):
    return SCALE * theta + 0.1 * rng.normal(size=theta.shape)
"""
FAST = ["-n", "60", "--test", "20", "-q"]
TRAINED = ["--max-steps", "4", "--refinement-steps", "1"]


def call(*words):
    return app([str(word) for word in words], standalone_mode=False)


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(scale):
        (tmp_path / "m.py").write_text(MODEL.replace("SCALE", str(scale)))

    write(1.0)
    return write


def test_a_second_process_in_one_run_is_refused(model, tmp_path):
    call("simulate", "m.py", "-o", "r", *FAST)
    with Lock(tmp_path / "r" / ".lock"):
        for command in (["simulate", "m.py", "-o", "r", *FAST], ["train", "r", "-q", *TRAINED]):
            with pytest.raises(InputError, match=r"The run 'r' is in use by process \d+ on"):
                call(*command)
    call("train", "r", "-q", *TRAINED)
    assert not (tmp_path / "r" / ".lock").exists()


@pytest.mark.filterwarnings("ignore:.*has changed since:UserWarning")
def test_a_changed_model_reuses_neither_rows_nor_weights(model, tmp_path):
    call("simulate", "m.py", "-o", "r", *FAST)
    call("train", "r", "-q", *TRAINED)
    model(3.0)
    with pytest.raises(InputError, match="was simulated by another model"):
        call("simulate", "m.py", "-o", "r", *FAST)
    for path in sorted((tmp_path / "r" / "simulations").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    call("simulate", "m.py", "-o", "r", *FAST)
    with pytest.raises(InputError, match="was trained on other simulations: remove it to start anew"):
        call("train", "r", "-q", *TRAINED)
    assert np.mean(ps.simulation.store.Store.open("r/simulations").rows("train")[1][:]) > 1


def test_force_keeps_the_rows_and_goes_on(model):
    call("simulate", "m.py", "-o", "r", *FAST)
    model(3.0)
    with pytest.warns(UserWarning, match="has changed since"):
        call("simulate", "m.py", "-o", "r", "--force", *FAST)


def test_leftovers_of_killed_processes_are_swept(model, tmp_path):
    from propersbi.storage.files import temporary_name

    call("simulate", "m.py", "-o", "r", *FAST)
    gone = []
    for place in ("run.json", "simulations/manifest.json", "simulations/train/chunk-000000.safetensors"):
        name = temporary_name(tmp_path / "r" / place)
        gone.append(name.with_name(name.name.replace(f"-{os.getpid()}-", "-4194303-")))
        gone[-1].write_text("half")
    call("simulate", "m.py", "-o", "r", *FAST)
    assert not any(path.exists() for path in gone)


def test_workers_do_not_outlive_a_killed_parent(tmp_path):
    script = f"""
import os, pathlib, time
from propersbi.simulation.executors import Joblib

def slow(chunk):
    pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()
    time.sleep(300)

if __name__ == "__main__":
    list(Joblib(2)(slow, range(2)))
"""
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL) as process:
        while len(list(tmp_path.iterdir())) < 2 and process.poll() is None:
            time.sleep(0.1)
        process.kill()
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert len(workers) == 2
    deadline = time.monotonic() + 30
    while any(is_running(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(is_running(pid) for pid in workers)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
