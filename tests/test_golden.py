"""The same seeds give the same numbers as when they were recorded."""

import json

import pytest

from tests.golden import CASES, PATH, numbers

RECORDED = json.loads(PATH.read_text())


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_are_those_that_were_recorded(name):
    for kind, values in numbers(name).items():
        assert values == pytest.approx(RECORDED[name][kind], rel=1e-3, abs=5e-4), kind  # processors round differently
