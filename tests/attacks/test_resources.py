"""A full disk, two runs in one folder, many fits in one process, in a small size (``make attacks`` makes many)."""

import pytest
from benchmarks.attacks.disk import attack_full_disk, can_mount
from benchmarks.attacks.soak import attack_by_soak
from benchmarks.attacks.writers import attack_run


@pytest.mark.skipif(not can_mount(), reason="needs a file system of one's own (unshare, tmpfs)")
def test_a_full_disk_loses_nothing():
    outcome = attack_full_disk("simulate", 3)
    assert (outcome.count, outcome.broken) == (3, [])


def test_two_runs_in_one_folder_leave_what_one_would(tmp_path):
    outcome = attack_run(1, tmp_path)
    assert (outcome.count, outcome.broken) == (1, [])


@pytest.mark.filterwarnings("ignore")
def test_fits_leave_nothing_open():
    outcome = attack_by_soak(4)
    assert (outcome.count, outcome.broken) == (4, [])
