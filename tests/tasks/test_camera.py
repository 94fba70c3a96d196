"""The noisy camera: its prior, its simulator and the image files it reads."""

import gzip
import pickle

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter
from typer.testing import CliRunner

import propersbi as ps
from propersbi import tasks
from propersbi.app.cli import app
from propersbi.app.run import Run
from propersbi.simulation.store import Store
from propersbi.tasks.camera import blurring, make_task, simulate
from propersbi.tasks.images.glyphs import CHARACTERS, FONTS, STROKES, Glyphs, atlas
from propersbi.tasks.images.idx import IdxImages, find_images, read_images
from propersbi.types import InputError


def images(n=6, rows=28, columns=28, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, rows, columns), dtype=np.uint8)


def idx(pixels, magic=(0, 0, 8, 3), sizes=None):
    return bytes(magic) + np.array(sizes or pixels.shape, ">u4").tobytes() + pixels.tobytes()


# -- glyphs


def test_glyphs_are_sharp_letters_on_black():
    theta = Glyphs().sample(600, np.random.default_rng(0))
    assert theta.shape == (600, 28, 28)
    assert theta.dtype == np.float32
    assert (theta.min(), theta.max()) == (0, 1)
    assert np.allclose(255 * theta, np.rint(255 * theta), atol=1e-4)  # 256 grey values
    assert 0.5 < (theta == 0).mean() < 0.85
    assert 0.03 < (theta == 1).mean() < 0.2
    ink = theta.sum((1, 2))
    assert ink.min() > 10
    assert len(np.unique(theta.reshape(600, -1), axis=0)) == 600


def test_glyphs_are_centred_and_rarely_reach_the_border():
    theta = Glyphs().sample(600, np.random.default_rng(1))
    middle = (theta * np.arange(28)[:, None]).sum((1, 2)) / theta.sum((1, 2))
    assert abs(middle.mean() - 13.5) < 0.5
    border = np.concatenate([theta[:, 0], theta[:, -1], theta[:, :, 0], theta[:, :, -1]], 1)
    assert (border > 0.5).any(1).mean() < 0.15


def test_every_character_font_and_stroke_is_in_the_atlas_once():
    glyphs = atlas()
    assert len(glyphs) == len(CHARACTERS) * len(FONTS) * len(STROKES)
    assert (glyphs.sum((1, 2)) > 50).all()
    assert len(np.unique(glyphs.reshape(len(glyphs), -1), axis=0)) > 0.97 * len(glyphs)  # l and I may look alike
    thin, thick = glyphs[: len(CHARACTERS)], glyphs[2 * len(CHARACTERS) : 3 * len(CHARACTERS)]
    assert (thick.sum((1, 2)) > thin.sum((1, 2))).all()


def test_distortion_moves_the_glyphs():
    plain = Glyphs(bend=0.0, turn=0.0, grow=0.0, move=0.0).sample(3000, np.random.default_rng(0))
    assert (plain > 0).any(0).sum() < (Glyphs().sample(3000, np.random.default_rng(0)) > 0).any(0).sum()
    with pytest.raises(InputError, match="'bend' must lie between 0 and 28, got -1"):
        Glyphs(bend=-1)


# -- the simulator


def reference_simulator(image, rng):
    """Poisson noise as scikit-image adds it, then SciPy's blur, one image at a time in double precision."""
    levels = 2 ** np.ceil(np.log2(len(np.unique(image))))
    return gaussian_filter(np.clip(rng.poisson(image * levels) / levels, 0, 1), 3.0)


def test_blur_agrees_with_scipy():
    theta = np.random.default_rng(0).uniform(size=(28, 28))
    assert np.allclose(blurring(28) @ theta @ blurring(28).T, gaussian_filter(theta, 3.0), atol=1e-6)


def test_noise_agrees_with_the_reference_simulator():
    rng = np.random.default_rng(0)
    theta = Glyphs().sample(4, rng).astype(float)
    ours = np.stack([simulate(theta, rng) for _ in range(600)])
    reference = np.stack([[reference_simulator(image, rng) for image in theta] for _ in range(600)])
    assert np.allclose(ours.mean(0), reference.mean(0), atol=5 * reference.std(0).max() / np.sqrt(600) * 2**0.5)
    noisy = reference.std(0) > 1e-3
    assert np.allclose((ours.std(0) / reference.std(0))[noisy].mean(), 1, atol=0.03)


def test_noise_follows_the_number_of_grey_values():
    two, many = np.zeros((2, 28, 28)), np.zeros((2, 28, 28))
    two[:, 4:24, 4:24] = 0.5
    many[:, 4:24, 4:24] = (np.arange(400) % 100 + 78).reshape(20, 20) / 255
    rng = np.random.default_rng(0)
    spread = [np.stack([simulate(image, rng)[0, 14, 14] for _ in range(400)]).std() for image in (two, many)]
    # Two values make N = 2, clipped at 1; 101 make N = 128.
    assert spread[1] == pytest.approx(np.sqrt(0.5 / 128) / (2 * np.sqrt(np.pi) * 3), rel=0.2)
    assert spread[0] > 4 * spread[1]


def test_black_stays_black_and_images_are_single_precision():
    x = simulate(np.zeros((2, 28, 28)), np.random.default_rng(0))
    assert not x.any()
    assert x.dtype == np.float32


def test_pairs_are_the_same_for_the_same_seed_and_chunk():
    task = tasks.get("camera")
    first, again = (ps.simulate(task.prior, task.simulate, 40, seed=5, progress=False) for _ in range(2))
    longer = ps.simulate(task.prior, task.simulate, 40, seed=5, chunk_size=20, progress=False)
    assert np.array_equal(first.theta, again.theta)
    assert np.array_equal(first.x, again.x)
    assert not np.array_equal(first.theta, longer.theta)  # each chunk has its own stream
    test = ps.simulate(task.test_prior, task.simulate, 40, seed=5, group="test", progress=False)
    both = np.concatenate([first.theta, test.theta]).reshape(80, -1)
    assert len(np.unique(both, axis=0)) == 80


def test_observations_come_with_their_true_image():
    task = tasks.get("camera")
    theta, x = task.true_parameters(3), task.observation(3)
    assert np.abs(blurring(28) @ theta @ blurring(28).T - x).max() < 0.06
    assert not np.array_equal(x, task.observation(4))
    assert task.posterior is None
    pickle.loads(pickle.dumps(task)).simulate(theta[None], np.random.default_rng(0))


# -- idx files


@pytest.mark.parametrize("compressed", [False, True])
def test_idx_round_trip(tmp_path, compressed):
    pixels = images()
    path = tmp_path / ("train-images-idx3-ubyte" + ".gz" * compressed)
    path.write_bytes(gzip.compress(idx(pixels)) if compressed else idx(pixels))
    assert np.array_equal(read_images(path), pixels)
    drawn = IdxImages(str(path)).sample(500, np.random.default_rng(0))
    assert drawn.dtype == np.float32
    assert len(np.unique(drawn.reshape(500, -1), axis=0)) == len(pixels)
    assert np.isin(np.rint(255 * drawn[0]).astype(int), pixels).all()


def test_emnist_is_transposed(tmp_path):
    pixels = images()
    path = tmp_path / "emnist-bymerge-train-images-idx3-ubyte"
    path.write_bytes(idx(pixels))
    assert np.array_equal(read_images(path), pixels.transpose(0, 2, 1))


def test_the_official_parts_are_found_and_separate(tmp_path, monkeypatch):
    raw = tmp_path / "EMNIST" / "raw"
    raw.mkdir(parents=True)
    train, test = images(5, seed=1), images(4, seed=2)
    for split in ("bymerge", "letters"):
        (raw / f"emnist-{split}-train-images-idx3-ubyte").write_bytes(idx(train if split == "bymerge" else test))
    (raw / "emnist-bymerge-test-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(test)))
    task = make_task(str(tmp_path))
    rng = np.random.default_rng(0)
    for prior, pixels in ((task.prior, train), (task.test_prior, test)):
        drawn = np.unique(np.rint(255 * prior.sample(200, rng)).astype(int).reshape(200, -1), axis=0)
        assert np.array_equal(drawn, np.unique(pixels.transpose(0, 2, 1).reshape(len(pixels), -1), axis=0))
    truth = np.rint(255 * task.true_parameters(1)).astype(int)
    assert any(np.array_equal(truth, image.T) for image in test)
    (raw / "emnist-bymerge-train-images-idx3-ubyte").unlink()
    assert find_images(tmp_path, "train").name == "emnist-letters-train-images-idx3-ubyte"


@pytest.mark.filterwarnings("ignore")  # so few images are unlike others
def test_a_run_on_the_images_of_a_folder(tmp_path, monkeypatch):
    """``propersbi run camera --images FOLDER``: its prior, its test images, and the run opened again."""
    folder, train, test = tmp_path / "mnist", images(5, seed=1), images(4, seed=2)
    folder.mkdir()
    (folder / "train-images-idx3-ubyte").write_bytes(idx(train))
    (folder / "t10k-images-idx3-ubyte").write_bytes(idx(test))
    monkeypatch.chdir(tmp_path)
    quick = ["-n", "40", "--test", "20", "--max-steps", "2", "--quiet", "--set", "batch_size=8"]
    for words in (
        ["run", "camera", "--images", "mnist", *quick],
        ["sample", "runs/camera", "-n", "2", "-o", "out.npy"],
    ):
        assert CliRunner().invoke(app, words).exit_code == 0
    run = Run.open("runs/camera")
    assert run.record.problem == "camera:mnist"
    for group, pixels in (("train", train), ("test", test)):
        theta = np.asarray(Store.open(run.folder / "simulations").rows(group)[0])
        drawn = np.rint(255 * theta).astype(int).reshape(len(theta), -1)
        assert {tuple(row) for row in drawn} <= {tuple(image.ravel()) for image in pixels}
    truth = np.rint(255 * tasks.get("camera:mnist").true_parameters(1)).astype(int)
    assert any(np.array_equal(truth, image) for image in test)
    with pytest.raises(InputError, match="Only the task 'camera' takes images, not 'slcp'"):
        tasks.get("slcp:mnist")
    result = CliRunner().invoke(app, ["run", "camera", "--images", "nowhere", *quick])
    assert "'nowhere' cannot be read" in str(result.exception)


def test_the_file_names_of_mnist_are_found(tmp_path):
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(images()))
    assert find_images(tmp_path, "test").name == "t10k-images-idx3-ubyte"
    with pytest.raises(InputError, match=r"no file '\*train-images-idx3-ubyte' or .* in"):
        find_images(tmp_path, "train")
    with pytest.raises(InputError, match="'part' must be 'train' or 'test', got 'all'"):
        find_images(tmp_path, "all")
    for name in ("emnist-letters", "emnist-digits"):
        (tmp_path / f"{name}-train-images-idx3-ubyte").write_bytes(idx(images()))
    with pytest.raises(InputError, match="holds 2 files of train images; give the path of one of"):
        find_images(tmp_path, "train")


DAMAGED = {
    "empty": (b"", "begins with nothing"),
    "labels": (idx(images(), magic=(0, 0, 8, 1)), "begins with 00000801"),
    "floats": (idx(images(), magic=(0, 0, 13, 3)), "begins with 00000d03"),
    "short header": (idx(images())[:10], "not an idx file of images"),
    "truncated": (idx(images())[:-1], r"(has \d+ bytes, but its header declares|holds \d+ bytes of pixels)"),
    "too long": (idx(images()) + b"x", r"(has \d+ bytes|holds more bytes)"),
    "huge": (idx(images(), sizes=(2**32 - 1, 28, 28)), "declares 4294967295 images of 28 x 28"),
    "flat": (idx(images(), sizes=(6, 0, 28)), "declares 6 images of 0 x 28"),
    "large": (idx(images(), sizes=(10**7, 28, 28)), r"declares 7840000\d+"),
    "wide": (idx(images(), sizes=(6, 2**31, 28)), "images of 2147483648 x 28"),
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("content", "message"), DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_idx_files_are_reported(tmp_path, content, message, compressed):
    path = tmp_path / ("images" + ".gz" * compressed)
    path.write_bytes(gzip.compress(content) if compressed else content)
    with pytest.raises(InputError, match=message):
        read_images(path)


def test_broken_archives_and_missing_files_are_reported(tmp_path):
    path = tmp_path / "images.gz"
    valid = gzip.compress(idx(images()))
    flipped = valid[:2000] + bytes([valid[2000] ^ 1]) + valid[2001:]
    for content in (valid[:-20], idx(images()), flipped):
        path.write_bytes(content)
        with pytest.raises(InputError, match="truncated or not a gzip file"):
            read_images(path)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_images(tmp_path / "nothing")
    small = tmp_path / "small"
    small.write_bytes(idx(images(3, 16, 16)))
    with pytest.raises(InputError, match=r"have \(16, 16\) pixels, expected \(28, 28\)"):
        IdxImages(str(small)).sample(1, np.random.default_rng(0))
