"""Many processes fill one store: no chunk is lost, whatever is killed, and the bytes are those of one process."""

import json
import os
import random
import subprocess
import sys
import time

import numpy as np
import pytest
from benchmarks.scale import play_claims

import propersbi as ps
from propersbi.simulation.claims import Part, UnderWayError, claims_folder
from propersbi.storage.locks import Lock, Owner
from propersbi.types import InputError

SCRIPT = """
import sys, time
import propersbi as ps
from propersbi.simulation.claims import Part, UnderWayError

def simulator(theta, rng):
    time.sleep(0.01)
    return theta + rng.normal(size=theta.shape)

if __name__ == "__main__":
    options = {"chunk_size": 5, "batched": False, "progress": False}
    try:
        ps.simulate([(0.0, 1.0)], simulator, 400, path="store", executor=Part(int(sys.argv[1]), 8), **options)
    except UnderWayError as error:
        print(error)
"""


def simulator(theta, rng):
    return theta + rng.normal(size=theta.shape)


def simulate(path, **options):
    return ps.simulate(
        [(0.0, 1.0)], simulator, 400, path=path, **{"chunk_size": 5, "batched": False, "progress": False, **options}
    )


def shards(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("chunk-*.safetensors")}


def test_of_eight_processes_five_are_killed_and_two_restarted(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)

    def start(number):
        return subprocess.Popen([sys.executable, "script.py", str(number)], cwd=tmp_path, stdout=subprocess.DEVNULL)

    processes = {number: start(number) for number in range(1, 9)}
    chance = random.Random(0)
    killed = chance.sample(range(1, 9), 5)
    folder = tmp_path / "store" / "train"
    for k, number in enumerate(killed, 1):
        deadline = time.monotonic() + 120
        while len(list(folder.glob("chunk-*"))) < 5 * k and time.monotonic() < deadline:
            time.sleep(0.02)
        processes[number].kill()
        processes[number].wait()
    processes |= {number: start(number) for number in killed[:2]}
    for process in processes.values():
        process.wait(timeout=300)
    assert [processes[number].returncode for number in sorted(set(range(1, 9)) - set(killed[2:]))] == [0] * 5
    found = shards(tmp_path / "store")
    assert len(found) == 80  # the survivors have done what the others left
    simulate(tmp_path / "serial")
    assert found == shards(tmp_path / "serial")


def test_a_part_does_its_share_first_and_then_helps(tmp_path):
    first = Part(2, 4).order(range(12))
    assert first[:3] == [1, 5, 9]
    assert sorted(first) == list(range(12))
    assert Part(3, 4).order(range(12))[3:] != first[3:]
    sims = simulate(tmp_path / "store", executor=Part(2, 4))
    assert np.asarray(sims.x).tobytes() == np.asarray(simulate(None).x).tobytes()


def test_a_living_claim_is_respected_and_a_dead_one_taken_over(tmp_path):
    claims = claims_folder(tmp_path, "train")
    with Lock(claims / "000007.lock"), pytest.raises(UnderWayError, match="1 of 80 chunks of group 'train'"):
        simulate(tmp_path, executor=Part(1, 2))
    assert len(shards(tmp_path)) == 79
    dead = {**vars(Owner.current()), "pid": 2**22 - 1, "token": "old"}
    (claims / "000007.lock").write_text(json.dumps(dead))
    assert len(simulate(tmp_path, executor=Part(2, 2))) == 400
    assert not list(claims.iterdir())


def test_a_claim_of_a_silent_machine_is_taken_over(tmp_path):
    claims = claims_folder(tmp_path, "train")
    claims.mkdir(parents=True)
    path = claims / "000003.lock"
    path.write_text(json.dumps({"host": "elsewhere", "pid": 1, "start": "", "token": "old"}))
    with pytest.raises(UnderWayError):
        simulate(tmp_path, executor=Part(1, 1))
    os.utime(path, (time.time() - 1000, time.time() - 1000))
    assert len(simulate(tmp_path, executor=Part(1, 1))) == 400


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "a/b", "1/2/3", "-1/4"])
def test_wrong_parts_are_refused(text):
    with pytest.raises(InputError, match="A part is"):
        Part.parse(text)


def test_parts_need_a_store():
    with pytest.raises(InputError, match="give 'path'"):
        simulate(None, executor=Part(1, 2))


@pytest.mark.parametrize(("parts", "chunks", "deaths"), [(1000, 2000, 300), (20, 300, 19), (3, 2, 1)])
def test_claims_played_as_events_end_with_every_chunk_done_once(parts, chunks, deaths):
    for seed in range(2):
        done, twice, _ = play_claims(parts, chunks, deaths, seed)
        assert (done, twice) == (chunks, 0)
