"""The page for those who come from sbi or BayesFlow: both halves of every pair run, in their order; `make peers`."""

import re
from pathlib import Path

import pytest

pytest.importorskip("sbi")
PAGE = (Path(__file__).parents[2] / "docs" / "coming_from.md").read_text()
PAIRS = re.findall(r"^## (\d+)\. .*?\n(.*?)(?=^## )", PAGE, flags=re.DOTALL | re.MULTILINE)


def blocks(library):
    """By the number of the pair, the code of one library."""
    found = {int(n): re.findall(rf"```python\n# {library}\n(.*?)```", text, re.DOTALL) for n, text in PAIRS}
    assert all(len(codes) == 1 for codes in found.values())
    return {number: codes[0] for number, codes in found.items()}


def test_there_are_twenty_pairs():
    assert [int(number) for number, _ in PAIRS] == list(range(1, 21))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["sbi", "propersbi"])
def test_every_block_runs(library, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for number, code in blocks(library).items():
        try:
            exec(code, names)
        except Exception as error:
            raise AssertionError(f"pair {number} of {library}") from error
    assert names["samples"].shape == (500, 2)
    assert names["many"].shape == (100, 20, 2)
    assert len(names["ranks"]) == 100


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["BayesFlow", "propersbi"])
def test_every_block_of_bayesflow_and_its_counterpart_runs(library, tmp_path, monkeypatch):
    pytest.importorskip("bayesflow")
    monkeypatch.chdir(tmp_path)
    names, section = {}, PAGE.partition("## From BayesFlow")[2]
    found = {
        one: re.findall(rf"```python\n# {one}\n(.*?)```", section, re.DOTALL) for one in ("BayesFlow", "propersbi")
    }
    assert len(found["BayesFlow"]) == len(found["propersbi"]) == 5
    for code in found[library]:
        exec(code, names)
    assert names["slopes"].shape == {"BayesFlow": (100, 100, 1), "propersbi": (100, 100)}[library]
