"""A few kills with -9 in simulate, fit and rounds (``make attacks`` kills 100, 50 and 20 times)."""

import pytest
from benchmarks.attacks.kills import attack_by_kills


@pytest.mark.parametrize(("what", "count"), [("simulate", 10), ("save", 6), ("fit", 5), ("rounds", 3)])
def test_kills_lose_nothing_and_change_no_bit(tmp_path, what, count):
    outcome = attack_by_kills(what, count, tmp_path)
    assert outcome.broken == []
    assert outcome.count == count
