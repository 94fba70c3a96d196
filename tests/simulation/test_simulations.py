"""Simulations: identical for every executor and after every interruption; errors report parameter and progress."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial

import numpy as np
import pytest
import torch
from torch.distributions import Exponential, Independent, MultivariateNormal, Normal, Uniform

from propersbi.simulation.executors import Joblib
from propersbi.simulation.priors import draw
from propersbi.simulation.simulations import SimulationError, Simulations, simulate
from propersbi.simulation.store import Store
from propersbi.simulation.stored_rows import StoredRows
from propersbi.types import InputError

N, SIZE = 53, 10


class Gaussian:
    """A prior with ``sample(n, rng)``."""

    def __init__(self, *event):
        self.event = event

    def sample(self, n, rng):
        return rng.normal(size=(n, *self.event))


def noisy(theta, rng):
    return np.concatenate([theta, theta**2], axis=1) + 0.1 * rng.normal(size=(len(theta), 4))


def run(prior=None, simulator=noisy, n=N, **options):
    options = {"progress": False, "chunk_size": SIZE, **options}
    return simulate(Gaussian(2) if prior is None else prior, simulator, n, **options)


def same(a, b):
    for left, right in zip(a, b, strict=True):
        assert np.asarray(left).tobytes() == np.asarray(right).tobytes()
    assert a.invalid == b.invalid
    return True


def shards(path, group="train"):
    return sorted((path / group).glob("chunk-*.safetensors"))


def identity(paths):
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


# -- identical results


def test_rows_parameters_and_data():
    sims = run()
    theta, x = sims
    assert theta is sims.theta
    assert (theta.shape, x.shape, theta.dtype, x.dtype) == ((N, 2), (N, 4), np.float32, np.float32)
    assert len(sims) == N
    np.testing.assert_allclose(x[:, 2:], x[:, :2] ** 2, atol=3.0)
    assert repr(sims) == "Simulations(theta (53, 2), x (53, 4), 0 invalid)"


def test_seeds_groups_and_chunks_have_separate_streams():
    draws = [run(seed=0), run(seed=1), run(group="test"), run(group="round-1")]
    rows = np.concatenate([np.asarray(sims.theta) for sims in draws])
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert same(run(seed=1), draws[1])


def test_disk_and_memory_agree(tmp_path):
    sims = run(path=tmp_path)
    assert isinstance(sims.x, StoredRows)
    assert same(sims, run())
    assert same(sims, run(path=tmp_path))


@pytest.mark.parametrize("kind", ["numpy", "torch", "global"])
def test_many_workers_agree_with_one(tmp_path, kind):
    prior = {"torch": Independent(Uniform(torch.zeros(2), torch.ones(2)), 1)}.get(kind, Gaussian(2))
    simulator = {
        "numpy": noisy,
        "torch": lambda theta: theta + torch.randn_like(theta),
        "global": lambda theta: theta + np.random.normal(size=theta.shape),
    }[kind]
    serial = run(prior, simulator)
    assert same(run(prior, simulator, executor=Joblib(2)), serial)
    assert same(run(prior, simulator, workers=2, path=tmp_path), serial)


def test_results_may_come_in_any_order():
    assert same(run(executor=lambda job, indices: map(job, reversed(indices))), run())


def test_an_executor_that_loses_chunks_is_reported():
    with pytest.raises(SimulationError, match="returned 2 of 6 chunks"):
        run(executor=lambda job, indices: map(job, indices[:2]))


def test_the_random_states_of_the_caller_are_restored():
    np.random.seed(3)
    torch.manual_seed(3)
    before = np.random.get_state()[1].copy(), torch.get_rng_state()
    run(Normal(0.0, 1.0), lambda theta: theta + torch.randn(1) + np.random.rand())
    assert (np.random.get_state()[1] == before[0]).all()
    assert (torch.get_rng_state() == before[1]).all()


def test_a_simulator_may_write_into_its_input_and_reuse_its_output():
    buffer = np.empty((SIZE, 2))

    def writes_into_its_input(theta):
        buffer[: len(theta)] = theta
        theta[:] = 0
        return buffer[: len(theta)]

    theta, x = run(simulator=writes_into_its_input)
    assert (theta == x).all()
    assert len(np.unique(theta)) == theta.size
    row = np.empty(2)
    theta, x = run(simulator=lambda theta: np.add(theta, 0, out=row), batched=False)
    assert (theta == x).all()


# -- priors and simulators


@pytest.mark.parametrize(
    ("prior", "event"),
    [
        (Gaussian(), (1,)),
        (Gaussian(3), (3,)),
        (Gaussian(2, 4, 5), (2, 4, 5)),
        (Normal(0.0, 1.0), (1,)),
        (Uniform(torch.zeros(3), torch.ones(3)), (3,)),
        (MultivariateNormal(torch.zeros(2).double(), torch.eye(2).double()), (2,)),
        ([Uniform(0.0, 1.0), Exponential(torch.ones(1)), Normal(0.0, 1.0)], (3,)),
        ((Normal(0.0, 1.0), Gaussian(2)), (3,)),
        (np.arange(7), (1,)),
        (np.arange(12.0).reshape(6, 2), (2,)),
        ([[1, 2, 3], [4, 5, 6]], (3,)),
        (torch.arange(8).reshape(4, 2), (2,)),
    ],
)
def test_priors(prior, event):
    arguments = []
    sims = run(prior, lambda theta: arguments.append(theta) or theta.reshape(len(theta), -1).sum(1))
    assert sims.theta.shape == (N, *event)
    assert sims.x.shape == (N, 1)
    parts = prior if isinstance(prior, (list, tuple)) else [prior]
    in_torch = all(isinstance(part, (torch.Tensor, torch.distributions.Distribution)) for part in parts)
    arguments = arguments[-6:]  # those before are of the calls that found out how to call the simulator
    assert {type(theta) for theta in arguments} == {torch.Tensor if in_torch else np.ndarray}
    assert {tuple(theta.shape[1:]) for theta in arguments} == {event}


def test_draws_of_an_array_are_its_rows():
    theta = run(np.arange(12.0).reshape(6, 2)).theta
    assert set(map(tuple, theta.tolist())) == {(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)}


def test_stored_rows_are_a_prior(tmp_path):
    stored = run(path=tmp_path).theta
    theta = draw(stored, 20, np.random.default_rng(0))
    assert (theta[:, None] == np.asarray(stored)).all(-1).any(1).all()


def test_a_prior_with_the_signature_of_torch():
    class TorchLike:
        def sample(self, sample_shape=()):
            return torch.zeros(*sample_shape, 2)

    assert run(TorchLike(), lambda theta: theta).theta.shape == (N, 2)


@pytest.mark.parametrize(
    ("simulator", "random"),
    [
        (lambda theta: theta, False),
        (lambda theta, rng: rng.normal(size=theta.shape), True),
        (lambda theta, generator: generator.normal(size=theta.shape), True),
        (lambda theta, scale=0.0, *, rng: theta * scale + rng.normal(size=theta.shape), True),
        (lambda theta, rng=None: rng.normal(size=theta.shape), True),
        (lambda theta, scale=1.0: theta * scale, False),
        (np.positive, False),
    ],
)
def test_the_generator_is_passed_to_simulators_that_take_it(simulator, random):
    theta, x = run(simulator=simulator)
    assert (theta == x).all() == (not random)


@pytest.mark.parametrize(
    "result",
    [
        lambda theta: theta.astype(np.float64),
        lambda theta: theta.astype(np.float16),
        lambda theta: torch.tensor(theta, requires_grad=True) * 1,
        lambda theta: torch.tensor(theta).bfloat16(),
        lambda theta: theta.tolist(),
        lambda theta: [torch.tensor(row, requires_grad=True) for row in theta],
        lambda theta: (theta * 100).astype(np.int64),
        lambda theta: theta > 0,
    ],
)
def test_data_of_any_type_become_float32(result):
    x = run(simulator=result).x
    assert x.dtype == np.float32
    assert x.shape == (N, 2)


@pytest.mark.parametrize(
    "prior", [Gaussian(2, 3), Independent(Normal(torch.zeros(2, 3), 1.0), 2)], ids=["numpy", "torch"]
)
def test_one_by_one(prior):
    shapes = set()
    sims = run(prior, lambda theta: shapes.add(tuple(theta.shape)) or theta.sum(), batched=False)
    assert shapes == {(2, 3)}
    np.testing.assert_allclose(sims.x, sims.theta.reshape(N, -1).sum(1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_images_as_parameters_and_data(tmp_path):
    sims = run(Gaussian(1, 8, 8), lambda theta, rng: theta + rng.normal(size=theta.shape), path=tmp_path)
    assert sims.theta.shape == sims.x.shape == (N, 1, 8, 8)
    assert sims.x[[5, 50, 5]].shape == (3, 1, 8, 8)


# -- chunks


@pytest.mark.parametrize(("n", "chunks"), [(1, 1), (7, 7), (100, 100), (250, 84)])
def test_there_are_about_a_hundred_chunks(tmp_path, n, chunks):
    assert len(run(n=n, chunk_size=None, path=tmp_path)) == n
    assert len(shards(tmp_path)) == chunks


def test_n_can_be_extended(tmp_path):
    run(path=tmp_path)
    before = identity(shards(tmp_path)[:5])
    sims = run(n=87, path=tmp_path, chunk_size=None)
    assert same(sims, run(n=87))
    assert identity(shards(tmp_path)[:5]) == before
    assert same(run(n=50, path=tmp_path), run(n=50))


def test_groups_share_a_folder(tmp_path):
    train, test = run(path=tmp_path), run(path=tmp_path, group="test", n=12)
    assert same(train, run())
    assert same(test, run(group="test", n=12))


def test_another_seed_is_refused(tmp_path):
    run(path=tmp_path)
    with pytest.raises(InputError, match="have seed 0, not 1"):
        run(path=tmp_path, seed=1)
    with pytest.raises(InputError, match="have chunk_size 10, not 11"):
        run(path=tmp_path, chunk_size=11)


def test_a_damaged_shard_is_set_aside_and_simulated_again(tmp_path):
    run(path=tmp_path)
    path = shards(tmp_path)[3]
    content = path.read_bytes()
    path.write_bytes(content[:-4])
    whole = run()
    with pytest.warns(UserWarning, match=r"chunk-000003\.safetensors' was damaged: it is set aside"):
        assert same(run(path=tmp_path), whole)
    assert path.read_bytes() == content
    assert path.with_name(path.name + ".damaged").exists()
    assert same(run(path=tmp_path), whole)


# -- rows that are not finite


def sometimes_nan(theta):
    x = theta.copy()
    x[theta[:, 0] > 1, 1] = np.nan
    x[theta[:, 0] < -2, 0] = 1e300  # finite, but not as float32
    return x


def test_rows_that_are_not_finite_are_excluded_and_counted(tmp_path):
    with pytest.warns(UserWarning, match=r"\d+ of 53 simulations \(\d+ %\) have NaN or infinite values") as caught:
        sims = run(simulator=sometimes_nan)
    assert caught[0].filename == __file__
    assert 0 < sims.invalid == N - len(sims)
    assert (sims.theta == sims.x).all()
    with pytest.warns(UserWarning, match=f"{sims.invalid} of 53"):
        assert same(run(simulator=sometimes_nan, path=tmp_path), sims)


def test_no_finite_rows_is_an_error(tmp_path):
    for path in (None, tmp_path):
        with pytest.raises(InputError, match="All 53 simulations have NaN or infinite values"):
            run(simulator=lambda theta: theta * np.nan, path=path)


# -- errors


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n": 0}, "'n' must be a whole number of at least 1, got 0"),
        ({"n": 2.5}, "'n' must be a whole number of at least 1, got 2.5"),
        ({"n": True}, "'n' must be a whole number"),
        ({"seed": -1}, "'seed' must be a whole number of at least 0, got -1"),
        ({"seed": None}, "'seed' must be a whole number of at least 0, got None"),
        ({"chunk_size": 0}, "'chunk_size' must be a whole number of at least 1, got 0"),
        ({"workers": 0}, "'workers' must be 1 or more, or None for all cores, got 0"),
        ({"workers": 2, "executor": Joblib(2)}, "'executor' or 'workers', not both"),
        ({"group": "../x"}, "'group' must consist of"),
        ({"simulator": 3}, r"a function of \(theta\) or \(theta, rng\), got 3"),
        ({"simulator": lambda theta, rng, more: 0}, r"a function of \(theta\) or \(theta, rng\)"),
        ({"simulator": lambda theta: theta[:4]}, r"must return x of shape \(10, ...\) for 10 parameters, got \(4, 2\)"),
        ({"simulator": lambda theta: 1.0, "batched": True}, r"for 10 parameters, got \(\) at theta = \["),
        ({"simulator": lambda theta: theta[:, :0]}, r"for 10 parameters, got \(10, 0\)"),
        ({"simulator": lambda theta: theta * 1j}, "must return real numbers, got complex128"),
        ({"simulator": lambda theta: torch.tensor(theta) * 1j}, "must return real numbers, got complex128"),
        ({"simulator": lambda theta: ["a"] * len(theta)}, "must return real numbers, got <U1"),
        ({"simulator": lambda theta: [[1], [1, 2]]}, "not an array: .*inhomogeneous"),
        ({"simulator": lambda theta: None}, r"returned None instead of numbers at theta = \["),
        ({"simulator": lambda theta: "text"}, r"must return real numbers, got str at theta = \["),
        ({"simulator": lambda theta: theta[:, : 1 + (len(theta) < 10)]}, r"returned x of shapes \(2,\) and \(1,\)"),
        ({"prior": None.__class__}, "A prior must have a method sample"),
        ({"prior": np.zeros((0, 2))}, r"needs at least 1 draw, got the shape \(0, 2\)"),
        ({"prior": np.array(["a"])}, "A prior must have a method sample"),
    ],
)
@pytest.mark.parametrize("disk", [False, True])
def test_invalid_arguments_are_reported(tmp_path, disk, options, sentence):
    with pytest.raises(InputError, match=sentence):
        run(**options, path=tmp_path if disk else None)


def test_shapes_that_change_from_row_to_row_are_refused():
    lengths = iter(range(1, 9))
    with pytest.raises(InputError, match=r"returned x of shapes \(1,\) and \(2,\)"):
        run(simulator=lambda theta: np.zeros(next(lengths)), batched=False)


def test_a_prior_with_a_wrong_number_of_draws_is_refused():
    class ThreeDraws:
        def sample(self, n, rng):
            return rng.normal(size=(3, 2))

    with pytest.raises(InputError, match=r"returned an array of shape \(3, 2\) for 10 draws"):
        run(ThreeDraws())


def fails(theta):
    """Fails in the chunk that holds the largest parameter."""
    if (theta > 2.0).any():
        raise ZeroDivisionError("a rate was zero")
    return theta


def first_failing():
    theta = draw_all()
    return theta[np.flatnonzero((theta > 2.0).any(1))[0]]


def draw_all():
    return np.asarray(run(simulator=lambda theta: theta).theta)


@pytest.mark.parametrize("batched", [True, False])
def test_a_simulator_that_raises_is_reported_with_its_parameter(batched):
    with pytest.raises(SimulationError, match=r"ZeroDivisionError: a rate was zero\. Nothing was saved") as caught:
        run(simulator=fails, batched=batched, on_error="raise")
    reported = str(caught.value).split("theta = [")[1].split("]")[0]
    np.testing.assert_allclose([float(value) for value in reported.split(",")], first_failing(), rtol=1e-6)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.__cause__.__traceback__ is not None


@pytest.mark.parametrize("workers", [1, 2])
def test_chunks_finished_before_the_error_are_kept(tmp_path, workers):
    numbers = np.arange(40.0)

    def fails(theta):
        if 7 in theta:
            raise ZeroDivisionError("a rate was zero")
        return theta

    with pytest.raises(
        SimulationError, match=r"theta = \[7\.\]: .*of 6 chunks are finished in .*continues\."
    ) as caught:
        run(numbers, fails, path=tmp_path, workers=workers, on_error="raise")
    assert "ZeroDivisionError: a rate was zero" in str(caught.value)
    assert f" {len(shards(tmp_path))} of 6 chunks" in str(caught.value)
    assert "ZeroDivisionError" in repr(caught.value.__cause__) + str(caught.value.__cause__)
    before = identity(shards(tmp_path))
    assert same(run(numbers, lambda theta: theta, path=tmp_path), run(numbers, lambda theta: theta))
    assert before.items() <= identity(shards(tmp_path)).items()


def test_a_failure_of_the_batch_reports_its_first_parameter():
    def together(theta):
        if len(theta) > 1:
            raise ValueError("too many")
        return theta

    with pytest.raises(SimulationError, match=r"theta = \[.*\] or a later row of its chunk: ValueError: too many\."):
        run(simulator=together, batched=True, on_error="raise")
    assert same(run(simulator=together, batched=True), run(simulator=lambda theta: theta))


def test_a_worker_that_dies_is_reported(tmp_path):
    numbers = np.arange(40.0)
    run(numbers, lambda theta: theta, n=20, path=tmp_path)
    with pytest.raises(SimulationError, match=r"stopped: TerminatedWorkerError: .* 2 of 6 chunks are finished"):
        run(numbers, lambda theta: os._exit(3), path=tmp_path, executor=Joblib(2))
    assert same(run(numbers, lambda theta: theta, path=tmp_path), run(numbers, lambda theta: theta))


def test_an_interrupt_keeps_finished_chunks(tmp_path):
    def interrupted(theta, rng):
        if len(shards(tmp_path)) == 3:
            raise KeyboardInterrupt
        return noisy(theta, rng)

    with pytest.raises(KeyboardInterrupt):
        run(simulator=interrupted, path=tmp_path)
    assert len(shards(tmp_path)) == 3
    assert same(run(path=tmp_path), run())


# -- other processes

SCRIPT = """
import sys, time
import numpy as np
from propersbi.simulation.simulations import simulate

class Gaussian:
    def sample(self, n, rng):
        return rng.normal(size=(n, 2))

def noisy(theta, rng):
    time.sleep(PAUSE)
    return np.concatenate([theta, theta**2], axis=1) + 0.1 * rng.normal(size=(len(theta), 4))

if __name__ == "__main__":
    simulate(Gaussian(), noisy, 530, path=sys.argv[1], chunk_size=10, progress=False, workers=int(sys.argv[2]))
"""


def start(tmp_path, pause, workers=1, script=SCRIPT):
    file = tmp_path / "script.py"
    file.write_text(textwrap.dedent(script).replace("PAUSE", str(pause)))
    # A process group of its own, so that signals to it and its workers do not reach the tests.
    command = [sys.executable, str(file), str(tmp_path / "sims"), str(workers)]
    # Shells make background jobs ignore the signal.
    restore_signal = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=restore_signal
    )


def wait_for_shards(process, path, count):
    while len(shards(path)) < count:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.005)


@pytest.mark.parametrize("workers", [1, 2])
def test_kill_and_run_again(tmp_path, workers):
    process = start(tmp_path, pause=0.03, workers=workers)
    wait_for_shards(process, tmp_path / "sims", 5)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    before = identity(shards(tmp_path / "sims"))
    assert 5 <= len(before) < 53
    assert same(run(n=530, path=tmp_path / "sims"), run(n=530))
    after = identity(shards(tmp_path / "sims"))
    assert len(after) == 53
    assert before.items() <= after.items()


def test_control_c_stops_many_workers(tmp_path):
    process = start(tmp_path, pause=0.03, workers=2)
    wait_for_shards(process, tmp_path / "sims", 3)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    assert 3 <= len(shards(tmp_path / "sims")) < 53


def test_two_processes_at_once(tmp_path):
    processes = [start(tmp_path, pause=0.0) for _ in range(2)]
    for process in processes:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    assert same(run(n=530, path=tmp_path / "sims"), run(n=530))


FULL_DISK = """
import os, resource, sys
import numpy as np
from propersbi.simulation.simulations import SimulationError, simulate

class Gaussian:
    def sample(self, n, rng):
        return rng.normal(size=(n, 2))

def noisy(theta, rng):
    train = sys.argv[1] + "/train"
    if os.path.exists(train) and len(os.listdir(train)) == 4:  # from now on no file may be longer
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))
    return np.concatenate([theta, theta**2], axis=1) + 0.1 * rng.normal(size=(len(theta), 4))

try:
    simulate(Gaussian(), noisy, 53, path=sys.argv[1], chunk_size=10, progress=False)
except SimulationError as error:
    sys.exit(str(error))
"""


def test_a_full_disk_is_reported_and_keeps_finished_chunks(tmp_path):
    process = start(tmp_path, 0, script=FULL_DISK)
    _, errors = process.communicate(timeout=60)
    assert "The simulations stopped: OSError: [Errno 27] File too large. 3 of 6 chunks are finished" in errors
    assert len(shards(tmp_path / "sims")) == 3
    assert len(list((tmp_path / "sims" / "train").iterdir())) == 4  # with the fingerprint; no partial file either
    assert same(run(path=tmp_path / "sims"), run())


def test_torch_is_not_loaded():
    code = "import sys, propersbi.simulation; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


LATE_TORCH = """
import sys
import numpy as np
from propersbi.simulation.simulations import simulate

def late(theta):
    import torch
    return torch.randn(len(theta), 2)

a, b = (simulate(np.zeros((1, 2)), late, 20, chunk_size=5, progress=False) for _ in range(2))
sys.exit(int(not (a.x == b.x).all()))
"""


def test_torch_imported_by_the_simulator_is_seeded_too(tmp_path):
    process = start(tmp_path, 0, script=LATE_TORCH)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


# -- progress


def test_the_bar_counts_simulations_and_continues(tmp_path, capfd):
    run(n=20, path=tmp_path)
    run(path=tmp_path, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "20/53" in err
    assert "53/53" in err
    assert "simulating" in err
    run(path=tmp_path, progress=False)
    assert capfd.readouterr() == ("", "")


def test_simulations_can_be_made_from_arrays():
    sims = Simulations(np.zeros((3, 2)), np.zeros((3, 5)))
    assert len(sims) == 3
    assert sims.invalid == 0


def test_the_store_of_a_run_can_be_opened(tmp_path):
    run(path=tmp_path)
    theta, _ = Store.open(tmp_path).rows("train")
    assert theta.shape == (N, 2)
