"""Commands about simulations: parts of a run, how far it is, and scripts for clusters."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from propersbi.app.status import plan, status
from propersbi.storage.locks import Lock
from propersbi.types import InputError
from tests.app.test_cli import call  # noqa: F401

MODEL = "prior = [(0.0, 1.0)]\ndef simulator(theta, rng):\n    return theta + rng.normal(size=theta.shape)\n"


def shards(folder):
    return {path.name: path.read_bytes() for path in Path(folder).rglob("chunk-*")}


def test_parts_status_and_completion(call):  # noqa: F811
    Path("model.py").write_text(MODEL)
    words = ("simulate", "model.py", "-n", "300", "--test", "30", "-q")
    code, out, err = call(*words, "-o", "r", "--part", "2/3")
    assert (code, "All chunks are finished" in out) == (0, True), err
    code, out, _ = call("status", "r")
    assert (code, out.splitlines()) == (
        0,
        ["train: 100 of 100 chunks done, 0 under way", "test: 10 of 10 chunks done, 0 under way"],
    )
    assert call("status", "r", "--watch")[1] == out
    assert call(*words, "-o", "r")[0] == 0  # records what there is
    assert json.loads(Path("r/run.json").read_text())["simulations"]["n"] == 300
    assert call(*words, "-o", "s")[0] == 0
    assert shards("r") == shards("s")
    assert "neither --workers nor --executor" in call(*words, "--part", "1/2", "--workers", "2")[2]
    assert "written as 17/200" in call(*words, "--part", "one")[2]


def test_status_of_a_run_under_way(call):  # noqa: F811
    Path("model.py").write_text(MODEL)
    assert call("simulate", "model.py", "-n", "100", "--test", "20", "-q", "-o", "r")[0] == 0
    plan(Path("r"), train=200)  # the second hundred in chunks of two rows
    claims = Path("r/simulations/train/claims")
    with Lock(claims / "000140.lock"):
        (claims / "000141.lock").write_text(json.dumps({"host": "node7", "pid": 5, "start": "", "token": "t"}))
        (claims / "000142.lock").write_text(json.dumps({"host": "node8", "pid": 5, "start": "", "token": "t"}))
        os.utime(claims / "000142.lock", (time.time() - 1000, time.time() - 1000))
        train = status("r")[0]
    assert (train.chunks, train.done, train.lost, sum(train.working.values())) == (150, 100, 1, 2)
    assert train.working["node7"] == 1
    assert train.rate > 0
    assert train.left > 0
    assert not train.complete
    assert "node7: 1 under way" in str(train)
    Path("r/plan.json").write_text("[]")
    with pytest.raises(InputError, match="is damaged"):
        status("r")
    assert "no simulations yet" in call("status", "nowhere")[2]


def test_a_slurm_script_submits_an_array_and_a_training_that_waits_for_it(call):  # noqa: F811
    words = ("cluster", "slurm", "my model.py", "-n", "1000", "--parts", "8", "--sbatch", "--mem=2G")
    code, out, _ = call(*words, "--script", "submit.sh")
    assert (code, "bash submit.sh" in out) == (0, True)
    log = Path("log")
    Path("sbatch").write_text(
        f'#!/bin/bash\necho "sbatch $*" >> "{log.absolute()}"\ncat >> "{log.absolute()}"\necho 42\n'
    )
    Path("sbatch").chmod(0o755)
    environment = {**os.environ, "PATH": f"{Path.cwd()}:{os.environ['PATH']}"}
    shown = subprocess.run(["bash", "submit.sh"], env=environment, capture_output=True, text=True, check=True).stdout
    text = log.read_text()
    assert "--array=1-8" in text
    assert "--mem=2G" in text
    assert "propersbi simulate 'my model.py' -o 'runs/my model' -n 1000 --part \"$SLURM_ARRAY_TASK_ID/8\"" in text
    assert "--dependency=afterany:42" in text
    assert "propersbi train 'runs/my model' --model 'my model.py'" in text
    assert "propersbi status 'runs/my model' --watch" in shown
    assert "'parts' must be at least 1" in call("cluster", "slurm", "two_moons", "--parts", "0")[2]
