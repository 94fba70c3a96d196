"""Chunks on a real cluster: the same bytes as in one process, whatever happens to its workers."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster

import propersbi as ps
from propersbi.simulation import engines, runs
from propersbi.types import InputError
from tests.app.test_cli import call  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore")  # of Dask, about clocks and ports


def simulator(theta, rng):
    time.sleep(0.002)
    return theta + rng.normal(size=theta.shape)


def simulate(**options):
    options = {"chunk_size": 10, "batched": False, "progress": False, **options}
    return ps.simulate([(0.0, 1.0)], options.pop("simulator", simulator), 400, **options)


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def serial():
    return simulate()


def same(one, other):
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(one, other, strict=True))


def pending(cluster):
    return sum(state.status == "pending" for state in list(cluster.futures.values()))


def shards(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("chunk-*")}


def test_dask_gives_the_bytes_of_serial_in_memory_and_on_disk(cluster, serial, tmp_path):
    assert same(simulate(executor=ps.Dask(cluster)), serial)
    simulate(path=tmp_path / "serial")
    address = cluster.scheduler.address
    assert same(simulate(executor=ps.Dask(address), path=tmp_path / "dask"), serial)
    assert shards(tmp_path / "dask") == shards(tmp_path / "serial")


def test_workers_that_are_killed_lose_nothing(cluster, serial, tmp_path):
    stop = threading.Event()

    def kill():
        for _ in range(3):
            if stop.wait(0.7):
                return
            pids = list(cluster.run(os.getpid).values())
            if pids:
                os.kill(pids[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        slow = lambda theta, rng: time.sleep(0.005) or simulator(theta, rng)  # noqa: E731
        sims = simulate(executor=ps.Dask(cluster), path=tmp_path, simulator=slow)
    finally:
        stop.set()
        thread.join()
    assert same(sims, serial)
    assert len(list(tmp_path.glob("train/chunk-*.safetensors"))) == 40
    cluster.wait_for_workers(2, timeout=60)


def test_rows_are_sent_back_by_workers_that_do_not_see_the_store(cluster, serial, tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "_sees", lambda path, index: False)
    elsewhere = f"{os.getpid()}"

    def names_its_process(theta, rng):
        assert str(os.getpid()) != elsewhere
        return simulator(theta, rng)

    sims = simulate(executor=ps.Dask(cluster), path=tmp_path / "sent", simulator=names_its_process)
    assert same(sims, serial)
    simulate(path=tmp_path / "serial")
    assert shards(tmp_path / "sent") == shards(tmp_path / "serial")


def test_parts_and_missing_entries_are_sent_back_too(cluster, tmp_path, monkeypatch):
    def parts(theta, rng):
        return {"a": theta[0], "b": np.where(rng.random(3) < 0.3, np.nan, rng.normal(size=3))}

    monkeypatch.setattr(runs, "_sees", lambda path, index: False)
    sent = simulate(executor=ps.Dask(cluster), path=tmp_path / "sent", simulator=parts, missing="allow")
    assert same(sent, simulate(path=tmp_path / "serial", simulator=parts, missing="allow"))
    assert shards(tmp_path / "sent") == shards(tmp_path / "serial")
    assert [part.name for part in sent.x.layout.parts] == ["a", "b"]
    manifests = [(tmp_path / name / "manifest.json").read_text() for name in ("sent", "serial")]
    assert manifests[0] == manifests[1]


def test_a_chunk_that_fails_is_tried_again_three_times(cluster, tmp_path):
    def fails(chunk, times):
        with (tmp_path / f"{times}-{chunk}").open("a") as file:
            file.write("x")
        if chunk == 3 and len((tmp_path / f"{times}-3").read_text()) <= times:
            raise MemoryError("too little")
        return chunk

    assert sorted(ps.Dask(cluster)(lambda chunk: fails(chunk, 2), range(6))) == list(range(6))
    with pytest.raises(ps.SimulationError, match="Chunk 3 failed 3 times: MemoryError: too little"):
        list(ps.Dask(cluster)(lambda chunk: fails(chunk, 9), range(6)))


def test_a_chunk_that_fails_is_named_by_its_parameters(cluster, serial):
    home = os.getpid()

    class Prior:
        def sample(self, n, rng):
            if os.getpid() != home:
                raise MemoryError("too little")
            return rng.uniform(size=(n, 1))

    with pytest.raises(ps.SimulationError, match=r"Chunk \d, which begins with theta = \[0\.\d+\], failed 3 times"):
        ps.simulate(Prior(), simulator, 20, chunk_size=10, executor=ps.Dask(cluster), batched=False, progress=False)


def test_an_interrupt_in_a_worker_ends_the_simulations_and_not_the_worker(cluster):
    home, pids = os.getpid(), set(cluster.run(os.getpid).values())

    def interrupts(theta, rng):
        if os.getpid() != home:
            raise KeyboardInterrupt
        return theta

    with pytest.raises(ps.SimulationError, match=r"Chunk \d+ was interrupted by KeyboardInterrupt in its worker\."):
        simulate(executor=ps.Dask(cluster), simulator=interrupts)
    assert set(cluster.run(os.getpid).values()) == pids


def test_few_chunks_are_under_way_at_once(cluster):
    most = 0
    done = []
    for result in ps.Dask(cluster)(lambda chunk: chunk, list(range(60))):
        done.append(result)
        most = max(most, pending(cluster))
    assert sorted(done) == list(range(60))
    assert most <= 6


def test_a_chunk_that_takes_much_longer_is_computed_twice(cluster, tmp_path):
    begun, ended = tmp_path / "begun", tmp_path / "ended"

    def slow_once(chunk):
        if chunk == 5 and not begun.exists():
            begun.touch()
            time.sleep(20)  # its worker computes nothing else in the meantime
            ended.touch()
        return chunk

    assert sorted(ps.Dask(cluster)(slow_once, range(12))) == list(range(12))
    assert begun.exists()
    assert not ended.exists()


def test_closing_early_cancels_what_is_under_way(cluster):
    results = ps.Dask(cluster)(lambda chunk: time.sleep(0.01) or chunk, range(1000))
    next(results)
    results.close()
    deadline = time.monotonic() + 30
    while pending(cluster) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not pending(cluster)


def test_wrong_clients_are_refused(monkeypatch):
    monkeypatch.setattr(engines, "CONNECT", 1.0)
    with pytest.raises(InputError, match=r"a distributed\.Client or an address, got int"):
        list(ps.Dask(3)(abs, [1]))
    with pytest.raises(InputError, match="There is no scheduler of Dask at 'nowhere:1'"):
        list(ps.Dask("nowhere:1")(abs, [1]))


def test_the_command_line_simulates_on_a_cluster(cluster, call):  # noqa: F811
    words = ("simulate", "two_moons", "-n", "40", "--test", "20", "-q")
    code, _, err = call(*words, "-o", "r", "--executor", "dask", "--address", cluster.scheduler.address)
    assert code == 0, err
    assert call(*words, "-o", "s")[0] == 0
    assert shards(Path("r")) == shards(Path("s"))
    assert "--address" in call(*words, "-o", "r", "--executor", "dask")[2]
    assert "name its --executor" in call(*words, "-o", "r", "--address", "x")[2]
