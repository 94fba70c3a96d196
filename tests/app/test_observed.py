"""Observed data from files as instruments, spreadsheets, pandas and R write them; whatever is broken is a sentence."""

import io
import zipfile

import numpy as np
import pytest

import propersbi as ps
from propersbi import tasks
from propersbi.app.observed import read_observation
from propersbi.types import InputError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1.5,2.5,3.5\n", [1.5, 2.5, 3.5]),
        ("1.5\n2.5\n3.5\n", [1.5, 2.5, 3.5]),
        ("a,b\n1.5,2.5\n", [1.5, 2.5]),
        ("height\n1.5\n2.5\n", [1.5, 2.5]),
        ("height\nin metres\n\n1.5\n2.5\n", [1.5, 2.5]),
        ("# by hand, on Monday\n1.5 2.5\n", [1.5, 2.5]),
        ("\ufeff1.5;2.5\r\n", [1.5, 2.5]),
        ("1.5\t2.5\n", [1.5, 2.5]),
        ("  1.5   2.5  \n\n", [1.5, 2.5]),
        ('"1.5", "2.5"\n', [1.5, 2.5]),
        ('"mean, in m","sd"\n1.5,2.5\n', [1.5, 2.5]),
        (",a,b\n0,1.5,2.5\n", [1.5, 2.5]),  # pandas
        (",0\n0,1.5\n1,2.5\n", [1.5, 2.5]),  # a Series
        ('"a" "b"\n"1" 1.5 2.5\n'.replace('"1"', "1"), [1.5, 2.5]),  # R
        ("1.5,2.5\n3.5,4.5\n", [[1.5, 2.5], [3.5, 4.5]]),
        ("7\n", [7]),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".txt", ".CSV"])
def test_numbers_in_text(tmp_path, text, values, suffix):
    path = tmp_path / f"x{suffix}"
    path.write_text(text, encoding="utf-8", newline="")
    found = read_observation(path, None)
    assert found.values.tolist() == values
    assert found.source == str(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" \n\n\t\n", "does not hold numbers: it is blank"),
        ("# nothing\n", "does not hold numbers: it is blank"),
        ("a,b\nc,d\n", "there is no row of numbers"),
        ("a\n1.5\nhigh\n", "'high' in line 3 is not a number"),
        ("1,2\n3\n", "its rows have from 1 to 2 entries"),
        ("x\n1.5\nNA\n2.5\n", "an entry of line 3 is missing"),
        ("x\nNA\n2.5\n", "an entry of line 2 is missing"),
        ("1.5,,2.5\n", "an entry of line 1 is missing"),
        (",1.5\n2.5,3.5\n", "an entry of line 1 is missing"),
        ("1.5\nnan\n", r"'observation' must be finite, got nan at \(1,\)"),
        ("1.5\n1e999\n", r"'observation' must be finite, got inf at \(1,\)"),
    ],
)
def test_broken_text_is_a_sentence(tmp_path, text, message):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_observation(tmp_path / "x.csv", None)


def archive():
    content = io.BytesIO()
    np.savez(content, a=np.ones(2))
    return content.getvalue()


def header(shape, descr="<f8"):
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": descr, "fortran_order": False, "shape": shape})
    return content.getvalue()


def not_an_archive():
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("notes.txt", "no arrays here")
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        archive(),
        not_an_archive(),
        archive()[:40],
        header((10**12,)) + b"12345678",
        header((10**30,)) + b"12345678",
        header((3,))[:20],
        header((3,)) + b"1234",
        b"\x93NUMPY\x01\x00\xff\xff" + b"{" * 100,
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff{'descr': '<f8'",
        b"not an array at all",
        header((2,), "|S4") + b"abcdefgh",
        header((1,), "<c16") + bytes(16),
    ],
)
def test_broken_arrays_are_sentences(tmp_path, content):
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_observation(tmp_path / "x.npy", None)
    assert "x.npy" in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("kind", [">f8", np.longdouble, np.float16, np.int32, bool])
def test_arrays_of_any_kind_of_number(tmp_path, kind):
    np.save(tmp_path / "x.npy", np.array([0, 1, 1]).astype(kind))
    assert read_observation(tmp_path / "x.npy", None).values.tolist() == [0, 1, 1]


@pytest.mark.parametrize("source", ["²", "-1", "1.5", "nowhere.csv", "."])
def test_words_that_name_no_file_are_sentences(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="There is no file"):
        read_observation(source, tasks.get("two_moons"))


def test_masked_and_complex_observations_are_refused():
    own = ps.Problem(prior=np.zeros((10, 2)), simulator=lambda theta: theta)
    with pytest.raises(InputError, match="'observation' has missing entries: 1 of 2 are masked"):
        read_observation(np.ma.array([1.0, 2.0], mask=[False, True]), own)
    with pytest.raises(InputError, match="'observation' must hold real numbers"):
        read_observation(np.array([1j, 2.0]), own)
