"""Locks: one owner at a time; that of a dead process is taken over, that of a living one is respected."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from propersbi.storage.locks import Lock, LockedError, Owner


def test_a_lock_has_one_owner_and_leaves_no_file(tmp_path):
    sentence = rf"The run is in use by process {os.getpid()} on '.*': wait until"
    with Lock(tmp_path / "lock"), pytest.raises(LockedError, match=sentence):
        Lock(tmp_path / "lock", "The run").acquire()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", [{"pid": 2**22 - 1}, {"start": "another"}])
def test_the_lock_of_a_dead_process_is_taken_over(tmp_path, change):
    owner = {**vars(Owner.current()), "token": "old", **change}
    (tmp_path / "lock").write_text(json.dumps(owner))
    with Lock(tmp_path / "lock"):
        assert json.loads((tmp_path / "lock").read_text())["token"] != "old"
    assert list(tmp_path.iterdir()) == []


def test_another_machine_is_trusted_while_its_heart_beats(tmp_path):
    path = tmp_path / "lock"
    path.write_text(json.dumps({"host": "elsewhere", "pid": 1, "start": "", "token": "old"}))
    with pytest.raises(LockedError, match="process 1 on 'elsewhere'"):
        Lock(path).acquire()
    os.utime(path, (time.time() - 100, time.time() - 100))
    with Lock(path):
        pass


@pytest.mark.parametrize("content", ["", "[]", "{", '{"pid": -1}', '{"host": 3, "pid": 1, "start": ""}'])
def test_a_damaged_lock_is_taken_over_when_it_is_old(tmp_path, content):
    path = tmp_path / "lock"
    path.write_text(content)
    with pytest.raises(LockedError, match="another process"):
        Lock(path).acquire()
    os.utime(path, (time.time() - 100, time.time() - 100))
    with Lock(path):
        pass


def test_of_many_threads_one_at_a_time_has_the_lock(tmp_path):
    inside, most = [], []
    (tmp_path / "lock").write_text(json.dumps({**vars(Owner.current()), "pid": 2**22 - 1, "token": "old"}))

    def enter():
        with Lock(tmp_path / "lock", wait=30):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 8


def test_a_killed_owner_does_not_keep_its_lock(tmp_path):
    script = f"""
import time
from propersbi.storage.locks import Lock
Lock({str(tmp_path / "lock")!r}).acquire()
print("locked", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().strip() == "locked"
        with pytest.raises(LockedError, match=f"process {process.pid}"):
            Lock(tmp_path / "lock").acquire()
        process.kill()
    with Lock(tmp_path / "lock"):
        pass
