import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from propersbi.app import cli

MODEL = """
import numpy as np

class Prior:
    lower, upper = np.zeros(2), np.ones(2)
    def sample(self, n, rng):
        return rng.uniform(size=(n, 2))

prior = Prior()

def simulator(theta, rng):
    return theta + 0.1 * rng.normal(size=theta.shape)

parameter_names = ["first", "second <b>"]
"""

QUICK = ["-n", "400", "--max-steps", "20", "-m", "3", "--refinement-steps", "1", "-q"]
RUN = ["run", "my_model.py", "--observation", "x.npy", "-o", "r", *QUICK]


def main(words, patch):
    """Run the command line in this process; its exit code."""
    patch.setattr(sys, "argv", ["propersbi", *map(str, words)])
    patch.setattr(warnings, "showwarning", warnings.showwarning)  # put back afterwards
    try:
        cli.main()
    except SystemExit as exit_:
        return exit_.code or 0
    return 0


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """Run the command line in this process; exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = main(words, monkeypatch)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a file, an observation and a finished run of them; what was printed is in out.txt and err.txt."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "my_model.py").write_text(MODEL)
    np.save(folder / "x.npy", np.array([0.3, 0.7]))
    with pytest.MonkeyPatch.context() as patch, io.StringIO() as out, io.StringIO() as err:
        patch.chdir(folder)
        with redirect_stdout(out), redirect_stderr(err):
            assert main(RUN, patch) == 0
        (folder / "out.txt").write_text(out.getvalue())
        (folder / "err.txt").write_text(err.getvalue())
    return folder


@pytest.fixture
def finished(made, tmp_path):
    """A copy of the finished run to work on."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


@pytest.fixture
def own_file(tmp_path):
    (tmp_path / "my_model.py").write_text(MODEL)
    np.save(tmp_path / "x.npy", np.array([0.3, 0.7]))
    return tmp_path


def test_step_by_step(call, tmp_path):
    assert call("simulate", "two_moons", "-n", "400", "-q", "-o", "r")[0] == 0
    code, out, err = call("train", "r", "--max-steps", "20", "-m", "3")
    assert (code, "Trained 20 steps" in out) == (0, True)
    assert "training" in err
    code, out, _ = call("sample", "r", "-x", "1")
    assert code == 0
    assert out.split()[:3] == ["parameter", "mean", "sd"]
    assert call("sample", "r", "-x", "1", "-n", "50", "-o", "s.csv")[0] == 0
    assert np.loadtxt("s.csv", delimiter=",", skiprows=1).shape == (50, 2)
    call("sample", "r", "-x", "1", "-n", "50", "-o", "s.npy")
    assert np.load("s.npy").shape == (50, 2)
    np.testing.assert_allclose(np.load("s.npy"), np.loadtxt("s.csv", delimiter=",", skiprows=1), rtol=1e-6)
    call("sample", "r", "-x", "1", "-n", "50", "-o", "s.parquet")
    import pyarrow.parquet as pq

    assert pq.read_table("s.parquet").column_names == ["theta_1", "theta_2"]
    assert call("sample", "r", "-x", "1", "-n", "50", "-o", "s.nc")[0] == 0
    import xarray

    np.testing.assert_allclose(xarray.open_dataset("s.nc", group="posterior")["theta_1"][0], np.load("s.npy")[:, 0])
    code, _, err = call("sample", "r", "-x", "1", "-o", "s.xls")
    assert (code, "written to .csv, .npy, .parquet, .nc or .zarr" in err) == (2, True)
    code, out, _ = call("sample", "r", "-x", "1", "-n", "3", "-o", "-")
    assert len(out.splitlines()) == 4


def test_run_with_an_own_file_and_again(call, finished):
    assert "Report: r/report.html" in (finished / "out.txt").read_text()
    assert (finished / "err.txt").read_text() == ""
    report = (finished / "r" / "report.html").read_text()
    assert "second &lt;b&gt;" in report
    assert "second <b>" not in report
    names = ("simulations", "posterior", "checkpoint.ckpt", "diagnostics.npz")
    assert all((finished / "r" / name).exists() for name in names)
    before = (finished / "r" / "diagnostics.npz").stat().st_mtime_ns
    shards = {p: p.stat().st_mtime_ns for p in (finished / "r" / "simulations").rglob("*.safetensors")}
    assert call(*RUN)[0] == 0
    assert {p: p.stat().st_mtime_ns for p in shards} == shards
    assert (finished / "r" / "diagnostics.npz").stat().st_mtime_ns == before


def test_run_in_rounds_and_again(call, own_file):
    quick = ("-n", "1600", "--test", "50", "--max-steps", "10", "-m", "3", "--refinement-steps", "1", "-q")
    command = ("run", "my_model.py", "--observation", "x.npy", "--rounds", "2", "-o", "r", *quick)
    code, out, err = call(*command)
    assert code == 0, err
    assert "Report:" in out
    shards = {p: p.stat().st_mtime_ns for p in (own_file / "r" / "simulations").rglob("*.safetensors")}
    assert {p.parent.name for p in shards} == {"round-1", "round-2", "test"}
    report = (own_file / "r" / "report.html").read_text()
    assert "truncated" in report.lower()
    assert "Share of the prior" in report
    assert "Proposal and posterior of each round" in report
    assert call(*command)[0] == 0
    assert {p: p.stat().st_mtime_ns for p in shards} == shards
    code, _, err = call("sample", "r", "-x", "x.npy")
    assert code == 0, err


def test_a_run_directory_never_runs_the_file_it_names(call, finished):
    (finished / "my_model.py").write_text("raise SystemExit('the file was run')")
    assert call("sample", "r", "-x", "x.npy")[0] == 0
    assert call("diagnose", "r", "-x", "x.npy", "-q")[0] == 0
    assert call("report", "r")[0] == 0


def test_more_simulations_are_added_and_trained_anew(call):
    assert call("simulate", "two_moons", "-n", "400", "-q", "-o", "r")[0] == 0
    shards = {p: p.stat().st_mtime_ns for p in Path("r/simulations").rglob("*.safetensors")}
    assert call("train", "r", "--max-steps", "20", "-m", "3", "-q")[0] == 0
    assert call("simulate", "two_moons", "-n", "500", "-q", "-o", "r")[0] == 0
    assert {p: p.stat().st_mtime_ns for p in shards} == shards
    code, _, err = call("train", "r", "--max-steps", "20", "-m", "3", "-q")
    assert code == 2
    assert "trained on other simulations" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "two_mons"], "two_moons"),
        (["run", "missing.py"], "There is no file 'missing.py'"),
        (["run", "my_model.py", "--observation", "nothing.npy"], "There is no file 'nothing.npy'"),
        (["run", "my_model.py", "--observation", "empty.npy"], "'empty.npy' is empty"),
        (["run", "my_model.py", "--observation", "empty.csv"], "'empty.csv' is empty"),
        (["run", "my_model.py", "--observation", "blank.csv"], "'blank.csv' does not hold numbers: it is blank"),
        (["run", "my_model.py", "--observation", "²"], "There is no file '²'"),
        (["run", "my_model.py", "--on-error", "ignore", "-q"], "'on_error' must be 'record' or 'raise', got 'ignore'"),
        (["run", "my_model.py", "--timeout", "0", "-q"], "'timeout' must be a positive number of seconds"),
        (["run", "exits.py"], "'exits.py' cannot be run: SystemExit: 0"),
        (["run", "twice.py"], "'parameter_names' must differ, but 'first' is there twice"),
        (["run", "names.py"], "There are 3 parameter names for 2 parameters"),
        (["run", "support.py"], "'support' must be bounds (lower, upper)"),
        (["run", "near.py"], "must define 'simulator'. It defines 'simulate': is that meant?"),
        (["new", "my_model.py"], "'my_model.py' is there already"),
        (["new", "my_model"], "a name that ends in .py"),
        (["new", "nowhere/my_model.py"], "'nowhere/my_model.py' cannot be written"),
        (["run", "my_model.py", "--observation", "words.csv"], "'words.csv' does not hold numbers"),
        (["run", "my_model.py", "--observation", "pickle.npy"], "'pickle.npy' does not hold numbers"),
        (["run", "my_model.py", "--observation", "x.doc"], "from .npy, .csv or .txt, not from 'x.doc'"),
        (["run", "my_model.py", "--observation", "3"], "Only a task has numbered observations"),
        (["run", "my_model.py", "-x", "nan.npy", *QUICK], "'observation' must be finite"),
        (["run", "my_model.py", "-x", "long.npy", *QUICK], "'observation' must have shape (2,)"),
        (["run", "my_model.py", "-n", "400", "-m", "1", "-q"], "m > 1 draws, got draws = 1"),
        (["run", "two_moons", "--rule", "enrgy"], "Did you mean 'energy'?"),
        (
            ["run", "my_model.py", "--rounds", "3", "-q"],
            "3 rounds are for one observation: give an 'observation' (--observation FILE)",
        ),
        (
            ["run", "my_model.py", "-x", "x.npy", "--rounds", "3", "--correction", "truncate"],
            "Did you mean 'truncated'?",
        ),
        (
            [
                "run",
                "my_model.py",
                "-x",
                "x.npy",
                "--rounds",
                "3",
                "--correction",
                "rejection",
                "--refinement-steps",
                "8",
            ],
            "refinement_steps",
        ),
        (["run", "two_moons", "-n", "0", "-q"], "'n' must be a whole number of at least 1, got 0"),
        (["run", "broken.py"], "'broken.py' cannot be run: NameError"),
        (["run", "half.py"], "'half.py' must define 'simulator'"),
        (["train", "nowhere"], "'nowhere' is not a run directory"),
        (["sample", "nowhere", "-x", "x.npy"], "'nowhere' is not a run directory"),
        (["run", "two_moons", "--observation", "11", "-q"], "numbered from 1 to 10, got 11"),
        (["rum", "two_moons"], "Did you mean 'run'?"),
        (["run", "two_moons", "--simulation", "100"], "--simulations"),
    ],
)
def test_mistakes_get_one_sentence_and_exit_code_2(call, own_file, words, message):
    (own_file / "empty.npy").touch()
    (own_file / "empty.csv").touch()
    (own_file / "blank.csv").write_text(" \n\n")
    (own_file / "words.csv").write_text("a,b\nc,d\n")
    (own_file / "exits.py").write_text("import sys\nsys.exit(0)")
    (own_file / "twice.py").write_text(MODEL.replace("second <b>", "first"))
    (own_file / "names.py").write_text(MODEL.replace("second <b>", 'second", "third'))
    (own_file / "support.py").write_text(MODEL + "support = 5")
    (own_file / "near.py").write_text(MODEL.replace("def simulator", "def simulate"))
    (own_file / "x.doc").write_text("1")
    np.save(own_file / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(own_file / "nan.npy", np.array([0.3, np.nan]))
    np.save(own_file / "long.npy", np.zeros(3))
    (own_file / "broken.py").write_text("prior = undefined")
    (own_file / "half.py").write_text("prior = [1]")
    code, out, err = call(*words)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
    assert out == ""


def test_debug_shows_the_traceback(call, monkeypatch):
    from propersbi.types import InputError

    with pytest.raises(InputError):
        call("run", "two_mons", "--debug")


def test_a_changed_byte_in_the_posterior_is_refused(call, finished):
    path = Path("r/posterior/weights.safetensors")
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    code, _, err = call("sample", "r", "-x", "x.npy")
    assert code == 2
    assert "checksum does not fit" in err


def test_a_simulator_that_raises_names_theta_and_keeps_the_chunks(call, tmp_path):
    (tmp_path / "m.py").write_text(
        MODEL.replace("return theta +", "if theta[0, 0] > 0.97: raise RuntimeError('too hot')\n    return theta +")
    )
    code, _, err = call("run", "m.py", "-o", "r", "--on-error", "raise", *QUICK)
    assert code == 1
    assert "too hot" in err
    assert "theta" in err
    assert list(Path("r/simulations").rglob("*.safetensors"))


def test_help_has_an_example_for_every_command(call):
    code, out, _ = call("--help")
    assert code == 0
    assert "propersbi new my_model.py" in " ".join(out.split())
    assert "4 for one that is not to be trusted" in " ".join(out.split())
    commands = ["tasks", "new", "check", "simulate", "train", "sample", "diagnose", "report", "run"]
    for command in commands:
        assert command in out
        text = call(command, "--help")[1]
        assert f"propersbi {command}" in text.split("Example")[1]
    assert "two_moons" in call("tasks")[1]


def test_a_file_may_hold_one_simulator_call_per_parameter(call, tmp_path):
    (tmp_path / "single.py").write_text(
        "import torch\n"
        "prior = [torch.distributions.Uniform(0., 1.), torch.distributions.Exponential(1.)]\n"
        "def simulator(theta):\n    assert theta.shape == (2,)\n    return theta + 0.1 * torch.randn(2)\n"
        "batched = False\nobservation = [0.5, 1.0]\n"
    )
    code, out, err = call("run", "single.py", "-o", "r", *QUICK)
    assert code == 0, err
    assert "Report" in out
    code, _, err = call("sample", "r", "--model", "single.py", "-n", "200", "-o", "s.npy")
    assert code == 0, err
    draws = np.load("s.npy")
    assert ((draws > 0) & (draws[:, :1] < 1)).all()


def test_an_own_embedding_must_be_named_again(call, tmp_path):
    (tmp_path / "embedded.py").write_text(MODEL + "\nimport torch\nembedding = torch.nn.Linear(2, 4)\n")
    np.save("x.npy", np.array([0.3, 0.7]))
    assert call("run", "embedded.py", "-x", "x.npy", "-o", "r", *QUICK)[0] == 0
    code, _, err = call("sample", "r", "-x", "x.npy")
    assert code == 2
    assert "pass it again" in err
    assert call("sample", "r", "-x", "x.npy", "--model", "embedded.py")[0] == 0


def test_ctrl_c_keeps_what_is_finished(tmp_path):
    command = [sys.executable, "-m", "propersbi.app.cli", "simulate", "slow.py", "-n", "400", "-o", "r"]
    (tmp_path / "slow.py").write_text(
        MODEL.replace("return theta +", "import time; time.sleep(0.2)\n    return theta +")
    )
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # shells tell background jobs to ignore it
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=heard)
    while not list((tmp_path / "r").rglob("chunk-*.safetensors")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "the same command continues" in err
    assert "Traceback" not in err
    assert list((tmp_path / "r").rglob("*.safetensors"))


def test_importing_the_package_and_asking_for_help_load_no_torch():
    code = "import sys, propersbi, propersbi.app.cli; print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "False"]


def test_run_json_says_what_was_done(made):
    record = json.loads((made / "r" / "run.json").read_text())
    assert record["problem"] == "my_model.py"
    assert record["simulations"]["n"] == 400
    assert record["command"] == " ".join(["propersbi", *RUN])
    assert record["training"]["recipe"]["draws"] == 3
    assert record["training"]["recipe"]["rule"] == {"class": "EnergyScore", "beta": 0.5, "fair": True}
    assert record["observation"] == {"source": "x.npy"}
    assert os.fspath(made) not in (made / "r" / "run.json").read_text()


@pytest.mark.filterwarnings("default")
def test_a_changed_model_and_bad_rows_are_said_in_a_sentence(call, own_file):
    assert call("simulate", "my_model.py", "-n", "400", "-q", "-o", "r")[2] == ""
    bad = MODEL.replace("return theta +", "theta[0] = np.nan\n    return theta +")
    (own_file / "my_model.py").write_text(bad)
    code, _, err = call("simulate", "my_model.py", "-n", "404", "-q", "-o", "r")
    assert code == 0
    lines = err.splitlines()
    assert lines[0] == "Warning: 'my_model.py' has changed since 'r' was made; what was simulated before is kept."
    assert lines[1].startswith("Warning: 1 of 404 simulations")
    assert len(lines) == 2


def test_any_choice_of_the_recipe_can_be_set(call, finished):
    (finished / "r" / "checkpoint.ckpt").unlink()
    words = ("--set", "learning_rate=1e-3", "--set", "stopping=[Patience(validations=7)]", "--beta", "1.0")
    assert call("train", "r", *QUICK[2:], *words)[0] == 0
    recipe = json.loads(Path("r/run.json").read_text())["training"]["recipe"]
    assert recipe["training"]["learning_rate"] == 1e-3
    (stopping,) = recipe["training"]["stopping"]
    assert (stopping["class"], stopping["validations"]) == ("Patience", 7)
    assert recipe["rule"]["beta"] == 1.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "learning_rat=1"], "did you mean 'learning_rate'?"),
        (["--set", "learning_rate"], "--set takes NAME=VALUE"),
        (["--set", "=3"], "--set takes NAME=VALUE"),
        (["--set", "rule=EnergyScor(beta=1.0)"], "'EnergyScor' is not a class that can be loaded"),
        (["--set", "rule=EnergyScore(1.0)"], "Write the arguments of EnergyScore by name"),
        (["--set", "rule=EnergyScore(gamma=1.0)"], "'EnergyScore' has no argument 'gamma'"),
        (["--set", "draws=__import__('os').getpid()"], "is not a number, a word, a list or a class"),
        (["--rule", "kernel", "--beta", "1"], "Only the energy score has a 'beta'"),
    ],
)
def test_wrong_choices_are_refused_before_anything_is_simulated(call, own_file, words, message):
    code, out, err = call("run", "my_model.py", "-o", "r", "-q", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert not Path("r").exists()


def test_the_version(call):
    import propersbi

    assert call("--version") == (0, f"propersbi {propersbi.__version__}\n", "")


def test_a_new_file_is_checked_and_runs_as_it_is(call, tmp_path):
    code, out, _ = call("new", "tea.py")
    assert code == 0
    assert "propersbi check tea.py" in out
    assert "propersbi run tea.py" in (tmp_path / "tea.py").read_text()
    code, out, err = call("check", "tea.py")
    assert (code, err) == (0, "")
    assert "temperature from 60 to 100, rate from 0.01 to 0.1" in out
    assert "takes one set of parameters at a time, by name, in NumPy" in out
    assert "No problems found." in out
    code, out, err = call("run", "tea.py", "-n", "500", "--max-steps", "50", "-m", "3", "--refinement-steps", "1", "-q")
    assert code == 0, err
    assert "temperature" in out
    assert call("sample", "runs/tea", "--model", "tea.py", "-n", "100")[1].splitlines()[2].startswith("temperature")


@pytest.mark.filterwarnings("default")
def test_strict_runs_end_with_the_code_of_their_verdict(call, finished):
    from propersbi.diagnostics import Diagnostics

    code = Diagnostics.load(Path("r")).exit_code
    assert code in (3, 4)  # 50 test pairs and 20 steps are nothing to rely on
    assert call("report", "r", "--strict")[0] == code
    assert call("diagnose", "r", "-x", "x.npy", "-q", "--strict")[0] == code
    assert call(*RUN, "--strict")[0] == code
    assert call("report", "r")[0] == call("diagnose", "r", "-x", "x.npy", "-q")[0] == call(*RUN)[0] == 0


@pytest.mark.filterwarnings("default")
def test_failed_simulations_are_counted_and_said(call, tmp_path):
    (tmp_path / "m.py").write_text(
        MODEL.replace("return theta +", "if theta[0] > 0.97: raise RuntimeError('too hot')\n    return theta +")
    )
    code, out, err = call("simulate", "m.py", "-n", "400", "--one-by-one", "-q", "-o", "r")
    assert code == 0
    record = json.loads(Path("r/run.json").read_text())["simulations"]
    assert 0 < record["failed"] == record["invalid"] < 40
    assert record["failure"] == "RuntimeError: too hot"
    assert "failed)" in out
    assert "most frequent error was RuntimeError: too hot" in err
    code, _, err = call("simulate", "m.py", "-n", "500", "--one-by-one", "--max-failed", "0.001", "-q", "-o", "r")
    assert code == 1
    assert "more than max_failed = 0.001 allows" in err


@pytest.mark.filterwarnings("default")
def test_a_program_that_is_ended_from_inside_is_an_error(call, monkeypatch):
    import propersbi.app.run as runs

    def leave(*_, **__):
        raise SystemExit(0)

    monkeypatch.setattr(runs, "run", leave)
    code, out, err = call("run", "two_moons")
    assert (code, out) == (1, "")
    assert "ended from inside" in err


def test_check_says_what_is_wrong(call, own_file):
    np.save("long.npy", np.zeros(3))
    code, out, _ = call("check", "my_model.py", "-x", "long.npy", "-n", "2000", "--workers", "2")
    assert code == 2
    assert "Problem: 'observation' must have shape (2,), got (3,)." in out
    assert "2,000 simulations to train on and 300 to test with" in out
    assert "in 2 processes" in out
    assert call("check", "my_model.py", "-x", "x.npy")[0] == 0
