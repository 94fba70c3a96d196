"""Chunks on real clusters of Ray and MPI: `make engines`."""

import os
import subprocess
import sys

import numpy as np
import pytest

import propersbi as ps

SCRIPT = """
import numpy as np
import propersbi as ps

def simulator(theta, rng):
    return theta + rng.normal(size=theta.shape)

if __name__ == "__main__":
    sims = ps.simulate([(0.0, 1.0)], simulator, 200, chunk_size=10, batched=False, executor=ps.MPI(), progress=False)
    np.save("x.npy", sims.x)
"""


def simulator(theta, rng):
    return theta + rng.normal(size=theta.shape)


def serial():
    return ps.simulate([(0.0, 1.0)], simulator, 200, chunk_size=10, batched=False, progress=False)


@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_bytes_of_serial_and_survives_a_killed_worker(tmp_path):
    ray = pytest.importorskip("ray")
    home = os.getpid()

    def dies_once(theta, rng):
        flag = tmp_path / "died"
        if os.getpid() != home and theta[0] > 0.9 and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), 9)
        return theta + rng.normal(size=theta.shape)

    def interrupts(theta, rng):
        if os.getpid() != home:
            raise KeyboardInterrupt
        return theta

    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False, logging_level="error")
    try:
        options = {"chunk_size": 10, "batched": False, "executor": ps.Ray(), "progress": False}
        sims = ps.simulate([(0.0, 1.0)], dies_once, 200, path=tmp_path / "store", **options)
        with pytest.raises(ps.SimulationError, match=r"Chunk \d+ was interrupted by KeyboardInterrupt in its worker\."):
            ps.simulate([(0.0, 1.0)], interrupts, 200, **options)
    finally:
        ray.shutdown()
    assert (tmp_path / "died").exists()
    assert np.asarray(sims.x).tobytes() == serial().x.tobytes()


def test_mpi_gives_the_bytes_of_serial(tmp_path):
    pytest.importorskip("mpi4py")
    (tmp_path / "script.py").write_text(SCRIPT)
    mpiexec = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    command = [mpiexec, "-n", "3", sys.executable, "-m", "mpi4py.futures", "script.py"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    assert np.load(tmp_path / "x.npy").tobytes() == serial().x.tobytes()
