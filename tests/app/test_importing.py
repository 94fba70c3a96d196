"""Simulations from elsewhere: imported chunk by chunk, from all kinds of files, and trained on as usual."""

from pathlib import Path

import numpy as np
import pytest

import propersbi as ps
from propersbi.app.importing import import_run
from propersbi.simulation.importing import import_rows
from propersbi.types import InputError
from tests.app.test_cli import call  # noqa: F401


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(2500, 2)).astype(np.float32)
    return theta, (theta[:, :1] + rng.normal(size=(2500, 3))).astype(np.float32)


def check(folder, theta, x):
    store = ps.Store.open(Path(folder) / "simulations")
    for group, part in (("train", slice(0, 2200)), ("test", slice(2200, None))):
        stored = store.rows(group)
        assert np.array_equal(stored[0][:], theta[part])
        assert np.array_equal(stored[1][:], x[part])


def test_arrays_are_imported_and_trained_on(call, rows):  # noqa: F811
    np.save("theta.npy", rows[0])
    np.save("x.npy", rows[1])
    code, out, err = call("import", "r", "theta.npy", "x.npy")
    assert (code, "2200 rows to train on and 300 to test with, 0 invalid" in out) == (0, True), err
    check("r", *rows)
    assert call("import", "r", "theta.npy", "x.npy")[0] == 0  # again: nothing is left to do
    assert call("train", "r", "-q", "--max-steps", "3", "--set", "refinement_steps=1")[0] == 0
    assert call("diagnose", "r", "-q", "--num-samples", "100")[0] == 0
    assert call("report", "r")[0] == 0


def test_a_folder_of_archives_and_a_parquet_file(tmp_path, rows):
    import pandas as pd

    theta, x = rows
    (tmp_path / "parts").mkdir()
    for k, at in enumerate(np.split(np.arange(2500), [400, 1700])):
        np.savez(tmp_path / "parts" / f"{k}.npz", theta=theta[at], x=x[at])
    import_run(tmp_path / "a", [tmp_path / "parts"])
    check(tmp_path / "a", theta, x)
    table = pd.DataFrame(np.concatenate([x, theta], 1), columns=["x", "y", "z", "a", "b"])
    table.to_parquet(tmp_path / "rows.parquet")
    import_run(tmp_path / "b", [tmp_path / "rows.parquet"], parameters=["a", "b"])
    check(tmp_path / "b", theta, x)
    assert ps.Store.open(tmp_path / "b" / "simulations").parameter_names == ("a", "b")
    with pytest.raises(InputError, match="There is no column 'c': name them with --parameters, of x, y, z, a, b"):
        import_run(tmp_path / "c", [tmp_path / "rows.parquet"], parameters=["a", "c"])


def test_a_store_imports_rows_that_no_simulation_is_added_to(tmp_path, rows):
    store = ps.Store.create_or_open(tmp_path, seed=0, chunk_size=300)
    theta = rows[0].copy()
    theta[7] = np.nan
    assert store.import_rows(theta, rows[1]) == 2500
    assert store.rows("train")[0].invalid == 1
    with pytest.raises(InputError, match="were imported, and no simulations are added"):
        ps.simulate([(0.0, 1.0)] * 2, lambda theta: theta, 3000, path=tmp_path, progress=False)
    ps.simulate(
        [(0.0, 1.0)] * 2, lambda theta: np.ones((len(theta), 3)), 300, path=tmp_path, group="own", progress=False
    )
    with pytest.raises(InputError, match=r"Group 'own' in .* holds simulations"):
        store.import_rows(*rows, group="own")


def test_wrong_files_and_rows_are_refused(tmp_path, rows):
    store = ps.Store.create_or_open(tmp_path / "s", seed=0, chunk_size=300)
    with pytest.raises(InputError, match="theta has 2500 rows but x has 3"):
        store.import_rows(rows[0], rows[1][:3])
    with pytest.raises(InputError, match="'x' must hold numbers"):
        store.import_rows(rows[0][:3], np.array(["a", "b", "c"]))
    with pytest.raises(InputError, match="Rows must have one shape"):
        import_rows(store, [(rows[0][:5], rows[1][:5]), (rows[0][:5], rows[1][:5, :2])])
    with pytest.raises(InputError, match="There are no rows"):
        import_rows(store, [])
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.npy").write_text("hello")
    for sources, message in (
        (["nowhere.npy", "x.npy"], "There is no file"),
        ([tmp_path / "empty"], "no .npz file"),
        ([tmp_path / "bad.npy"], "Give theta.npy and x.npy"),
        ([tmp_path / "bad.npy", tmp_path / "bad.npy"], "cannot be read as an array"),
    ):
        with pytest.raises(InputError, match=message):
            import_run(tmp_path / "r", sources)
