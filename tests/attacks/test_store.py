"""Attacks on stores: few descriptors, flipped bits, other models, other processes."""

import json
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

from propersbi.simulation.simulations import simulate
from propersbi.simulation.store import Store
from propersbi.types import InputError


class Normal:
    def __init__(self, mean=0.0):
        self.mean = mean

    def sample(self, n, rng):
        return self.mean + rng.normal(size=(n, 2))


def noisy(theta, rng):
    return theta + rng.normal(size=theta.shape)


def other(theta, rng):
    return 50 + theta + rng.normal(size=theta.shape)


def one_by_one(theta, rng):
    return float(theta[0]) + rng.normal(size=3)


def run(path, prior=None, simulator=noisy, n=40, **options):
    return simulate(prior or Normal(), simulator, n, path=path, chunk_size=10, progress=False, **options)


def shard(folder, chunk=1, group="train"):
    return folder / group / f"chunk-{chunk:06d}.safetensors"


FEW_DESCRIPTORS = """
import resource, sys
import numpy as np
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from propersbi.simulation.store import Store
import propersbi.simulation.shards as shards
shards._SMALL_COLUMN = int(sys.argv[2])
theta, x = Store.open(sys.argv[1]).rows("train")
rng = np.random.default_rng(0)
for _ in range(5):
    rows = rng.permutation(len(x))
    assert (x[rows][:, 0] == rows).all() and (theta[rows][:, 0] == rows).all()
print("read", len(x))
"""


@pytest.mark.parametrize("small", [0, 1 << 16], ids=["maps", "arrays"])
def test_more_shards_than_descriptors_are_read(tmp_path, small):
    store = Store.create_or_open(tmp_path, seed=0, chunk_size=1)
    for i in range(150):
        store.write("train", i, np.full((1, 1), i, np.float32), np.full((1, 3), i, np.float32))
    done = subprocess.run(
        [sys.executable, "-c", FEW_DESCRIPTORS, str(tmp_path), str(small)], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "read 150", done.stderr[-2000:]


@pytest.mark.parametrize("offset", [-1, -25, -50, -60, -120, -150])  # in valid, x and theta
def test_a_flipped_bit_in_a_shard_is_noticed(tmp_path, offset):
    run(tmp_path)
    path = shard(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:offset] + bytes([content[offset] ^ 0x40]) + content[len(content) + offset + 1 :])
    with pytest.raises(InputError, match=r"chunk-000001\.safetensors' is damaged"):
        [rows[:] for rows in Store.open(tmp_path).rows("train", 40)]
    with pytest.warns(UserWarning, match="set aside"):
        run(tmp_path)
    assert path.read_bytes() == content


def test_a_flipped_bit_in_manifest_or_failures_is_noticed(tmp_path):
    def fails(theta):
        if theta[0] > 1.5:
            raise ValueError("too large")
        return theta

    with pytest.warns(UserWarning, match="failed"):
        run(tmp_path, simulator=fails, batched=False)
    path = next(tmp_path.glob("train/*.failures.json"))
    content = path.read_text()
    path.write_text(content.replace("too large", "too lerge"))
    with pytest.raises(InputError, match="is damaged"):
        Store.open(tmp_path).failures("train")
    with pytest.warns(UserWarning, match="set aside|failed"):
        run(tmp_path, simulator=fails, batched=False)
    assert path.read_text() == content
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(InputError, match="checksum does not fit"):
        Store.open(tmp_path)


def test_a_valid_row_is_finite_unless_the_store_says_that_nan_is_data(tmp_path):
    x = np.ones((3, 2), np.float32)
    x[1, 0] = x[2] = np.nan
    store = Store.create_or_open(tmp_path / "a", seed=0, chunk_size=3)
    store.write("train", 0, np.ones((3, 1), np.float32), x, nan=True)
    assert len(store.rows("train")[1][:]) == 2
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    old = {**manifest, "version": 1, "x": {"shape": [2], "dtype": "float32"}}  # of the first version, without checksums
    (tmp_path / "a" / "manifest.json").write_text(json.dumps(old))
    with pytest.raises(InputError, match="x is not finite where it is said to be"):
        store.rows("train")[1][:]


def test_a_store_of_the_first_version_is_read_and_continued(tmp_path):
    from safetensors.numpy import load_file, save_file

    whole = run(tmp_path / "new")
    run(tmp_path / "old", n=20)
    manifest = json.loads((tmp_path / "old" / "manifest.json").read_text())
    del manifest["checksum"]
    (tmp_path / "old" / "manifest.json").write_text(json.dumps({**manifest, "version": 1}))
    (tmp_path / "old" / "train" / "fingerprint.safetensors").unlink()
    for chunk in range(2):
        save_file(load_file(shard(tmp_path / "old", chunk)), shard(tmp_path / "old", chunk))
    np.testing.assert_array_equal(run(tmp_path / "old").x, whole.x)


@pytest.mark.parametrize("simulator", [noisy, one_by_one], ids=["batches", "one by one"])
@pytest.mark.parametrize("n", [40, 80], ids=["complete", "longer"])
def test_another_simulator_or_prior_is_refused(tmp_path, simulator, n):
    run(tmp_path, simulator=simulator)
    changed = {noisy: other, one_by_one: lambda theta, rng: one_by_one(theta, rng) * 1.01}[simulator]
    for prior, now in ((Normal(), changed), (Normal(50.0), simulator)):
        with pytest.raises(InputError, match=r"was simulated by another model: .* Delete the folder .*--force"):
            run(tmp_path, prior, now, n=n)
    assert len(run(tmp_path, simulator=simulator, n=n)) == n
    assert len(run(tmp_path, Normal(), changed, n=n, force=True)) == n


def test_a_simulator_that_is_not_repeatable_is_told_apart_once(tmp_path):
    own = np.random.default_rng()

    def random(theta):
        return theta + own.normal(size=theta.shape)

    run(tmp_path, simulator=random)
    with pytest.warns(UserWarning, match="other data under the same seed"):
        run(tmp_path, simulator=random)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(run(tmp_path, simulator=random, n=60)) == 60
    with pytest.raises(InputError, match="another model"):
        run(tmp_path, Normal(50.0), random, n=60)


def test_two_processes_with_different_simulators_do_not_mix_rows(tmp_path):
    script = """
import sys
import numpy as np
from propersbi.simulation.simulations import simulate
shift = float(sys.argv[2])
def slow(theta, rng):
    import time
    time.sleep(0.002)
    return theta[:1] * 0 + shift
try:
    simulate((np.zeros(2), np.ones(2)), slow, 300, path=sys.argv[1], chunk_size=5, progress=False, batched=False)
    print("done")
except ValueError as error:
    print("refused" if "another model" in str(error) else error)
"""
    both = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), shift], stdout=subprocess.PIPE, text=True)
        for shift in ("1", "2")
    ]
    answers = sorted(process.communicate(timeout=120)[0].strip() for process in both)
    assert answers == ["done", "refused"]
    assert len(np.unique(Store.open(tmp_path).rows("train")[1][:])) == 1


def test_a_wrong_first_attempt_does_not_poison_the_store(tmp_path):
    def broken(theta):
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError, match="a mistake"):
        run(tmp_path, simulator=broken)
    assert len(run(tmp_path)) == 40
    with pytest.raises(InputError, match=r"Delete the folder"):
        run(tmp_path, simulator=lambda theta, rng: noisy(theta, rng)[:, :1])


def test_many_processes_write_one_store(tmp_path):
    results, errors = [], []

    def attempt():
        try:
            results.append(np.asarray(run(tmp_path, simulator=lambda theta: theta**2, n=100).x))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=attempt) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert all(len(x) == 100 for x in results)


def extend(path, ns, simulator=noisy):
    for n in ns:
        simulations = simulate(Normal(), simulator, n, path=path, progress=False)
    return simulations


def test_a_store_grows_by_larger_chunks_with_the_same_bytes(tmp_path):
    grown = extend(tmp_path / "a", [150, 1000])
    files = sorted((tmp_path / "a" / "train").glob("chunk-*.safetensors"))
    assert len(files) == 100 + 100 + 50  # of 2, 4 and 8 rows
    np.testing.assert_array_equal(np.asarray(grown.x)[:150], np.asarray(extend(tmp_path / "b", [150]).x))
    assert extend(tmp_path / "c", [150, 640, 799]).x.shape == (799, 2)
    np.testing.assert_array_equal(extend(tmp_path / "c", [1000]).x, grown.x)
    files[230].write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="set aside"):
        np.testing.assert_array_equal(extend(tmp_path / "a", [1000]).x, grown.x)


def test_failures_of_larger_chunks_have_the_numbers_of_their_rows(tmp_path):
    def fails(theta):
        if theta[0] > 2:
            raise ValueError("too large")
        return theta

    with pytest.warns(UserWarning, match="failed"):
        grown = extend(tmp_path, [100, 600], fails)
    theta = np.concatenate([shard_rows(path) for path in sorted((tmp_path / "train").glob("chunk-*.safetensors"))])
    assert [failure.row for failure in grown.failures] == np.flatnonzero(theta[:, 0] > 2).tolist()


def shard_rows(path):
    from safetensors.numpy import load_file

    return load_file(path)["theta"]


@pytest.mark.parametrize("options", [{"workers": 2}, {"timeout": 30.0}], ids=["workers", "processes"])
def test_a_simulator_that_interrupts_its_worker_ends_the_run(tmp_path, options):
    script = f"""
import os
import numpy as np
import propersbi as ps
from propersbi.simulation import startup

startup.HEAD_START = startup.START_UP = 0.0
home = os.getpid()

def interrupts(theta):
    if theta[0] > 0.5 and os.getpid() != home:
        raise KeyboardInterrupt
    return theta

try:
    ps.simulate((np.zeros(1), np.ones(1)), interrupts, 200, path={str(tmp_path)!r}, batched=False, progress=False,
                **{options})
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "interrupted", done.stderr[-2000:]
