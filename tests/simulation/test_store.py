"""The store: atomic shards, damage is reported with its file, and rows are indexed like an array."""

import json
import pickle
import struct
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from propersbi.simulation.store import Store
from propersbi.simulation.stored_rows import StoredRows
from propersbi.types import InputError

SIZE = 5


def chunk_of(store, n, chunk, seed=0, bad=0.0):
    """theta (rows, 2) and x (rows, 2, 3) of one chunk; a fraction ``bad`` of its rows is not finite."""
    rng = np.random.default_rng([seed, chunk])
    rows = store.chunking.within(chunk, n)
    theta = rng.normal(size=(rows, 2)).astype(np.float32)
    x = rng.normal(size=(rows, 2, 3)).astype(np.float32)
    x[rng.random(rows) < bad, 1, 2] = np.nan
    return theta, x


def fill(store, n, group="train", bad=0.0):
    for chunk in store.missing(group, n):
        store.write(group, chunk, *chunk_of(store, n, chunk, bad=bad))
    return store


@pytest.fixture
def store(tmp_path):
    return fill(Store.create_or_open(tmp_path / "simulations", seed=0, chunk_size=SIZE), 23)


def shard(store, chunk=1, group="train"):
    return store.folder / group / f"chunk-{chunk:06d}.safetensors"


# -- chunks


def test_missing_follows_the_directory_listing(store):
    assert store.missing("train", 23) == []
    shard(store, 2).unlink()
    assert store.missing("train", 23) == [2]
    assert store.missing("test", 7) == [0, 1]


def test_n_can_grow_and_a_larger_shard_serves_a_smaller_n(store):
    assert store.missing("train", 25) == [4]  # the last chunk had three rows
    fill(store, 31)
    assert store.missing("train", 31) == store.missing("train", 23) == []
    assert [len(rows) for rows in store.rows("train", 23)] == [23, 23]
    assert len(store.rows("train")[0]) == 31


def test_rows_are_in_the_order_of_chunks(tmp_path):
    store = Store.create_or_open(tmp_path, seed=0, chunk_size=SIZE)
    chunks = [chunk_of(store, 23, chunk) for chunk in range(5)]
    for chunk in (3, 0, 4, 2, 1):
        store.write("train", chunk, *chunks[chunk])
    theta, x = store.rows("train", 23)
    np.testing.assert_array_equal(theta, np.concatenate([theta for theta, _ in chunks]))
    np.testing.assert_array_equal(x, np.concatenate([x for _, x in chunks]))


def test_finished_chunks_can_be_read_before_the_rest(store):
    shard(store, 2).unlink()
    assert len(store.rows("train")[0]) == 18
    with pytest.raises(InputError, match=r"incomplete: 1 of its chunks are missing"):
        store.rows("train", 23)
    with pytest.raises(InputError, match=r"Group 'test' .* incomplete: all of its chunks"):
        store.rows("test")


def test_leftover_temporary_files_are_ignored(store):
    for name in (".chunk-000099.safetensors.123.tmp", "chunk-000098.safetensors.tmp", "notes.txt"):
        (store.folder / "train" / name).write_bytes(b"half a shard")
    assert len(store.rows("train")[0]) == 23


def test_invalid_rows_are_excluded_and_counted(tmp_path):
    store = fill(Store.create_or_open(tmp_path, seed=0, chunk_size=SIZE), 23, bad=0.5)
    theta, x = store.rows("train", 23)
    assert 0 < theta.invalid == x.invalid == 23 - len(theta)
    assert np.isfinite(np.asarray(x)).all()


def test_a_chunk_without_valid_rows_is_skipped(tmp_path):
    store = Store.create_or_open(tmp_path, seed=0, chunk_size=2)
    for chunk, value in enumerate([np.nan, 1.0, np.inf, 2.0]):
        store.write("train", chunk, np.full((2, 1), value), np.ones((2, 3)))
    theta, _ = store.rows("train")
    assert theta[:].ravel().tolist() == [1, 1, 2, 2]
    assert theta.invalid == 4


def test_arrays_need_not_be_contiguous(tmp_path):
    store = Store.create_or_open(tmp_path, seed=0, chunk_size=4)
    theta = np.arange(24.0).reshape(8, 3)[::2]
    x = np.asfortranarray(np.arange(8, dtype=np.float32).reshape(4, 2))
    store.write("train", 0, theta, x)
    np.testing.assert_array_equal(store.rows("train")[0], theta)
    np.testing.assert_array_equal(store.rows("train")[1], x)
    assert store.rows("train")[0].dtype == np.float64


# -- invalid arguments


@pytest.mark.parametrize(
    ("change", "sentence"), [({"seed": 1}, "have seed 0, not 1"), ({"chunk_size": 7}, "have chunk_size 5, not 7")]
)
def test_another_seed_or_chunk_size_is_refused(store, change, sentence):
    with pytest.raises(InputError, match=sentence):
        Store.create_or_open(store.folder, **{"seed": 0, "chunk_size": SIZE, **change})


@pytest.mark.parametrize(("seed", "chunk_size"), [(-1, 5), (0.5, 5), (True, 5), (0, 0), (0, None)])
def test_wrong_numbers_are_refused(tmp_path, seed, chunk_size):
    with pytest.raises(InputError, match="must be a whole number of at least"):
        Store.create_or_open(tmp_path, seed=seed, chunk_size=chunk_size)


@pytest.mark.parametrize("group", ["", "..", "../up", "a/b", ".hidden", "a b", "a\n", None, "x" * 200])
def test_groups_that_are_no_folder_names_are_refused(store, group):
    with pytest.raises(InputError, match="'group' must consist of"):
        store.missing(group, 3)


def test_other_shapes_dtypes_and_lengths_are_refused(store):
    theta, x = chunk_of(store, 99, 7)
    with pytest.raises(InputError, match=r"x has rows of shape \(3,\) and float32, but .* rows of shape \(2, 3\)"):
        store.write("train", 7, theta, x[:, 0])
    with pytest.raises(InputError, match=r"theta has .* float16, but"):
        store.write("test", 7, theta.astype(np.float16), x)
    with pytest.raises(InputError, match=r"non-empty arrays of float16, 32 or 64, got int64"):
        store.write("train", 7, theta.astype(int), x)
    with pytest.raises(InputError, match=r"1 to 5 rows, got 5 of theta and 4 of x"):
        store.write("train", 7, theta, x[:4])


def test_a_folder_that_is_a_file_or_nothing_is_refused(tmp_path):
    (tmp_path / "file").write_text("hello")
    with pytest.raises(InputError, match="Simulations cannot be stored in"):
        Store.create_or_open(tmp_path / "file", seed=0, chunk_size=5)
    with pytest.raises(InputError, match=r"There is no file .*manifest\.json"):
        Store.open(tmp_path / "nothing")


def test_shards_without_a_manifest_are_refused(store):
    (store.folder / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"There is no file .*manifest\.json"):
        Store.create_or_open(store.folder, seed=1, chunk_size=SIZE)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: "",
        lambda content: "{",
        lambda content: "[1]",
        lambda content: json.dumps({**content, "version": 3}),
        lambda content: json.dumps({**content, "seed": "0"}),
        lambda content: json.dumps({**content, "chunk_size": 0}),
        lambda content: json.dumps({**content, "theta": 3}),
        lambda content: json.dumps({key: content[key] for key in ("version", "seed")}),
    ],
)
def test_a_damaged_manifest_is_reported(store, damage):
    path = store.folder / "manifest.json"
    path.write_text(damage(json.loads(path.read_text())))
    with pytest.raises(InputError, match=r"manifest\.json"):
        Store.open(store.folder)


def test_another_format_version_is_reported(store):
    path = store.folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 3}))
    with pytest.raises(InputError, match="has format version 3, but this library reads version 2"):
        Store.open(store.folder)


# -- damaged shards


def with_header(content, change):
    """The bytes of a shard whose header was changed."""
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    header = change(header) or header
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content[8 + length :]


def changed(name, **entry):
    return lambda content: with_header(content, lambda header: header[name].update(entry))


DAMAGES = {
    "empty": lambda content: b"",
    "short": lambda content: content[:5],
    "only a length": lambda content: content[:8],
    "truncated": lambda content: content[:-1],
    "longer": lambda content: content + b"\0",
    "noise": lambda content: bytes(range(256)) * 4,
    "huge header": lambda content: struct.pack("<Q", 2**63) + content[8:],
    "header of the whole file": lambda content: struct.pack("<Q", len(content) - 8) + content[8:],
    "no JSON": lambda content: content[:8] + b"!" + content[9:],
    "JSON list": lambda content: with_header(content, lambda header: [1, 2]),
    "JSON text": lambda content: with_header(content, lambda header: "text"),
    "deep JSON": lambda content: struct.pack("<Q", 400_000) + b"[" * 400_000,
    "missing column": lambda content: with_header(content, lambda header: header.pop("x") and None),
    "offsets beyond": changed("x", data_offsets=[0, 10**12]),
    "offsets back": changed("x", data_offsets=[40, 0]),
    "overlap": changed("x", data_offsets=[0, 120]),
    "fractions": changed("x", data_offsets=[0.0, 120.0]),
    "negative": changed("x", shape=[-5, -2, 3]),
    "huge shape": changed("x", shape=[5, 2**62, 2**62]),
    "no shape": changed("x", shape=[]),
    "wrong dtype": changed("x", dtype="I32"),
    "other float": changed("x", dtype="F64", shape=[5, 1, 3]),
    "unknown dtype": changed("x", dtype="X9"),
    "other rows": changed("x", shape=[6, 5]),
    "entry is a number": lambda content: with_header(content, lambda header: header.update(x=3)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_shard_is_reported(store, damage):
    path = shard(store)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"chunk-000001\.safetensors' is damaged \(.+\): run the"):
        store.rows("train", 23)


def test_a_shard_of_another_problem_is_reported(store, tmp_path):
    other = Store.create_or_open(tmp_path / "other", seed=0, chunk_size=SIZE)
    other.write("train", 1, np.ones((5, 2), np.float32), np.ones((5, 6), np.float32))
    shard(store).write_bytes(shard(other).read_bytes())
    with pytest.raises(InputError, match=r"x has rows of shape \(6,\) and float32, but the manifest .*\(2, 3\)"):
        store.rows("train", 23)


def test_a_shard_that_shrinks_in_use_does_not_end_the_process(store):
    theta, _ = store.rows("train", 23)
    shard(store).write_bytes(b"")
    with pytest.raises(InputError, match="changed or removed"):
        theta[7]
    shard(store).unlink()
    with pytest.raises(InputError, match="changed or removed"):
        theta[7]
    assert theta[0].shape == (2,)


def test_shards_are_plain_safetensors(store):
    from safetensors.numpy import load_file

    content = load_file(shard(store))
    assert {name: array.shape for name, array in content.items()} == {"theta": (5, 2), "x": (5, 2, 3), "valid": (5,)}


# -- concurrent writers


def test_only_one_of_many_processes_creates_the_manifest(tmp_path):
    outcomes, barrier = [], threading.Barrier(8)

    def create(seed):
        barrier.wait()
        try:
            outcomes.append(Store.create_or_open(tmp_path / "new", seed=seed, chunk_size=SIZE).seed)
        except InputError:
            outcomes.append(None)

    threads = [threading.Thread(target=create, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [seed for seed in outcomes if seed is not None]
    assert len(winners) == 1
    assert len(outcomes) == 8
    assert Store.open(tmp_path / "new").seed == winners[0]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["manifest.json"]


# -- indexing


@pytest.fixture(scope="module")
def columns(tmp_path_factory):
    store = Store.create_or_open(tmp_path_factory.mktemp("rows"), seed=0, chunk_size=SIZE)
    theta, x = fill(store, 43, bad=0.3).rows("train", 43)
    return (theta, np.asarray(theta)), (x, np.asarray(x))


def test_shape_and_dtype(columns):
    for rows, array in columns:
        assert isinstance(rows, StoredRows)
        assert (rows.shape, rows.dtype, len(rows)) == (array.shape, array.dtype, len(array))
        assert repr(rows).endswith(f"shape={array.shape}, dtype=float32)")


lengths = st.integers(-60, 60) | st.none()


@settings(max_examples=200, deadline=None)
@given(data=st.data(), start=lengths, stop=lengths, step=lengths.filter(lambda step: step != 0))
def test_indexing_agrees_with_arrays(columns, data, start, stop, step):
    n = len(columns[0][0])
    index = data.draw(st.lists(st.integers(-n, n - 1), max_size=60))
    mask = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
    for rows, array in columns:
        np.testing.assert_array_equal(rows[start:stop:step], array[start:stop:step], strict=True)
        np.testing.assert_array_equal(rows[index], array[index], strict=True)
        np.testing.assert_array_equal(rows[np.array(mask)], array[np.array(mask)], strict=True)
        np.testing.assert_array_equal([rows[i] for i in index], [array[i] for i in index])


def test_other_kinds_of_index(columns):
    import torch

    for rows, array in columns:
        table = np.array([[0, 5], [-1, 5]])
        np.testing.assert_array_equal(rows[table], array[table], strict=True)
        np.testing.assert_array_equal(rows[np.uint8(3)], array[3], strict=True)
        np.testing.assert_array_equal(rows[torch.tensor([4, 1])], array[[4, 1]], strict=True)
        np.testing.assert_array_equal(list(rows), list(array))
        np.testing.assert_array_equal(np.asarray(rows, np.float64), array.astype(np.float64), strict=True)


@pytest.mark.parametrize("index", [43, -44, [0, 99], 0.5, [0.5], "a", (0, 1), [True, False], None])
def test_wrong_indices_are_index_errors(columns, index):
    with pytest.raises(IndexError):
        columns[0][0][index]


def test_an_array_without_a_copy_is_refused(columns):
    with pytest.raises(ValueError, match="on disk"):
        np.asarray(columns[0][0], copy=False)


def test_rows_pickle_small_and_read_the_same(columns):
    rows, array = columns[1]
    rows[:]  # all shards are mapped
    content = pickle.dumps(rows)
    np.testing.assert_array_equal(pickle.loads(content), array)
    assert b"memmap" not in content


def test_more_shards_than_maps(columns, monkeypatch):
    monkeypatch.setattr("propersbi.simulation.stored_rows._MAX_MAPPED_SHARDS", 2)
    monkeypatch.setattr("propersbi.simulation.shards._SMALL_COLUMN", 0)
    rows, array = pickle.loads(pickle.dumps(columns[1]))  # nothing is mapped yet
    np.testing.assert_array_equal(rows[::-1], array[::-1])
    assert len(rows._maps) <= 2


def test_maps_are_released_before_they_fill_the_memory(tmp_path, monkeypatch):
    store = Store.create_or_open(tmp_path, seed=0, chunk_size=10)
    for chunk in range(20):
        store.write("train", chunk, np.full((10, 1), chunk, np.float32), np.full((10, 100), chunk, np.float16))
    monkeypatch.setattr("propersbi.simulation.stored_rows._MAX_MAPPED_BYTES", 5 * 10 * 100 * 2)  # five chunks of x
    _, x = store.rows("train")
    rows = np.random.default_rng(0).permutation(200)
    assert np.array_equal(x[rows][:, 0], rows // 10)
    assert 1 <= len(x._maps) <= 5
    assert x.dtype == np.float16
