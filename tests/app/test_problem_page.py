"""The page about problem files tells the truth: every file on it can be checked, and what it says is what is seen."""

import re
from pathlib import Path

import pytest

from propersbi.app.checking import check_problem
from propersbi.app.options import EXIT_CODES
from propersbi.app.problems import OPTIONAL

PAGE = (Path(__file__).parents[2] / "docs" / "problem_file.md").read_text()
FILES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(FILES)))
def test_every_file_can_be_run(number, tmp_path):
    path = tmp_path / "my_model.py"
    path.write_text(FILES[number])
    seen = check_problem(path)
    assert seen.problems == ()
    assert seen.source == "from the model file"
    if number == 0:
        (shown,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)
        assert shown in seen.summary() + "\n"


def test_every_name_and_every_exit_code_is_there():
    names = re.findall(r"^\| `(\w+)` \|", PAGE, flags=re.MULTILINE)
    assert set(names) == {"prior", "simulator", "observation", "problem", *OPTIONAL}
    codes = re.findall(r"^\| (\d+) \|", PAGE, flags=re.MULTILINE)
    assert codes == ["0", "1", "2", "3", "4", "130"]
    assert all(re.search(rf"\b{code}\b", EXIT_CODES) for code in codes)
