import hashlib
import json
import os
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import propersbi as ps
from propersbi.networks import MLPGenerator
from propersbi.posterior import Posterior
from propersbi.samplers.base import Adapted, Sampler
from propersbi.samplers.bounds import Box
from propersbi.samplers.standardized import Standardize, Standardized
from propersbi.storage.checks import checked_names
from propersbi.storage.files import checksum_of_json
from propersbi.types import InputError
from tests.laws.cases import OwnModule


def make(theta_shape=(2,), x_shape=(3,), support=None, **options):
    torch.manual_seed(0)
    units = Standardize(theta_shape), Standardize(x_shape, tail=5.0)
    network = MLPGenerator(theta_shape, x_shape, width=16, depth=1, **options)
    return Posterior(Standardized(network, *units, support or Box()))


@pytest.fixture
def saved(tmp_path):
    posterior = make(support=Box(-1.0, (1.0, None)))
    posterior.save(tmp_path / "posterior")
    return posterior, tmp_path / "posterior"


def test_shapes_follow_sbi():
    posterior = make()
    assert posterior.sample((5,), x=np.zeros(3)).shape == (5, 2)
    assert posterior.sample((5, 4), x=torch.zeros(1, 3)).shape == (5, 4, 2)
    assert posterior.sample(x=torch.zeros(3)).shape == (2,)
    assert posterior.sample_batched((5,), x=np.zeros((7, 3), dtype=np.float64)).shape == (5, 7, 2)
    assert posterior.set_default_x(torch.zeros(3)) is posterior
    assert posterior.sample((5,)).shape == (5, 2)
    assert posterior.default_x.shape == (1, 3)
    assert posterior.to("cpu") is posterior


def test_any_event_shape():
    posterior = make((2, 2), (1, 4, 1))
    assert posterior.sample((3,), x=np.zeros((1, 4, 1))).shape == (3, 2, 2)
    assert posterior.sample_batched((3,), x=np.zeros((6, 1, 4, 1))).shape == (3, 6, 2, 2)
    scalar = make((1,), (1,))
    assert scalar.sample((3,), x=0.5).shape == (3, 1)
    assert scalar.sample_batched((3,), x=[0.5, 0.6]).shape == (3, 2, 1)


def test_seed_repeats_and_leaves_the_caller_alone():
    posterior = make()
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    a = posterior.sample((10,), x=np.zeros(3), seed=1)
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(posterior.sample((10,), x=np.zeros(3), seed=1), a)
    assert not torch.equal(posterior.sample((10,), x=np.zeros(3), seed=2), a)
    torch.manual_seed(5)  # without a seed the global one counts, as in sbi
    b = posterior.sample((10,), x=np.zeros(3))
    torch.manual_seed(5)
    assert torch.equal(posterior.sample((10,), x=np.zeros(3)), b)


def test_large_requests_are_cut_in_pieces_with_a_bar(monkeypatch, capsys):
    monkeypatch.setattr("propersbi.posterior.MAX_DRAWS_AT_ONCE", 50)
    monkeypatch.setattr("propersbi.posterior.LONG_WORK", 500)
    posterior = make()
    xs = torch.randn(30, 3)
    draws = posterior.sample_batched((120,), x=xs)
    assert draws.shape == (120, 30, 2)
    assert torch.isfinite(draws).all()
    assert "sampling" in capsys.readouterr().err
    posterior.sample_batched((120,), x=xs, show_progress_bars=False)
    assert capsys.readouterr().err == ""


def test_draws_stay_in_the_support():
    posterior = make(support=Box((0.0, None), (0.01, -5.0)))
    draws = posterior.sample((2000,), x=np.ones(3)).double()
    assert (draws[:, 0] >= 0).all()
    assert (draws[:, 0] <= 0.01).all()
    assert (draws[:, 1] <= -5).all()


def test_save_and_load_draw_the_same(saved):
    posterior, folder = saved
    twin = Posterior.load(folder)
    x = np.array([0.1, 0.2, 0.3])
    assert torch.equal(twin.sample((20,), x=x, seed=3), posterior.sample((20,), x=x, seed=3))
    assert twin.parameter_names == ("theta_1", "theta_2")
    assert twin.box == posterior.box == Box(-1.0, (1.0, None))
    assert ps.Posterior is Posterior


def test_the_default_observation_is_kept(tmp_path):
    make().set_default_x(np.arange(3.0)).save(tmp_path / "posterior")
    loaded = Posterior.load(tmp_path / "posterior")
    assert loaded.default_x.tolist() == [[0.0, 1.0, 2.0]]
    assert loaded.sample((5,)).shape == (5, 2)


def test_saving_again_leaves_nothing_else_behind(saved):
    posterior, folder = saved
    (folder / "stray").write_text("old")
    posterior.save(folder)
    assert sorted(os.listdir(folder)) == ["config.json", "stray", "weights.safetensors"]
    assert os.listdir(folder.parent) == ["posterior"]


@pytest.mark.parametrize("name", ["config.json", "weights.safetensors"])
@pytest.mark.parametrize("where", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_a_changed_byte_is_refused(saved, name, where):
    _, folder = saved
    content = bytearray((folder / name).read_bytes())
    at = min(int(where * len(content)), len(content) - 2)
    content[at] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=r"checksum|JSON|format|cannot be read|does not hold"):
        Posterior.load(folder)


@pytest.mark.parametrize("name", ["config.json", "weights.safetensors"])
def test_missing_and_empty_files_are_refused(saved, name):
    _, folder = saved
    (folder / name).write_bytes(b"")
    with pytest.raises(InputError, match=name):
        Posterior.load(folder)
    (folder / name).unlink()
    with pytest.raises(InputError, match=name):
        Posterior.load(folder)


def rewritten(folder, change):
    """A forged file: its checksum fits what it says."""
    config = json.loads((folder / "config.json").read_text())
    config.pop("checksum")
    change(config)
    (folder / "config.json").write_text(json.dumps({**config, "checksum": checksum_of_json(config)}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda c: c["sampler"]["sampler"].update({"class": "os.system"}),
            "'os.system' is not a class that can be loaded",
        ),
        (lambda c: c["sampler"].update({"class": "__import__"}), "not a class that can be loaded"),
        (lambda c: c["sampler"]["sampler"].update({"command": "true"}), "has no argument 'command'"),
        (lambda c: c["sampler"]["sampler"].update(width=10**7), "do not fit its network"),
        (lambda c: c["sampler"]["sampler"].update(width=10**30), "positive whole numbers"),
        (lambda c: c["sampler"]["sampler"].update(depth=10**6), "positive whole numbers"),
        (lambda c: c["sampler"]["sampler"].update(width="big"), "positive whole numbers"),
        (
            lambda c: c["sampler"]["sampler"].update(embedding={"class": "custom", "name": "evil.Net"}),
            "pass it again as 'embedding'",
        ),
        (lambda c: c.update(format=1), "has format 1; this version reads format 2"),
        (lambda c: c.update(sampler=[]), "'sampler' must be an object"),
        (lambda c: c.update(sampler={"class": "Box"}), "is not a sampler"),
        (lambda c: c.update(info=[1, 2]), "'info' must be an object"),
        (lambda c: c.update(weights=None), "'weights' must be text"),
        (lambda c: c["sampler"].update(sampler={"class": "Standardize", "shape": [2]}), "cannot be built"),
        (lambda c: c["sampler"].update(sampler=7), "cannot be built"),
        (lambda c: c["sampler"].update(x_units=3), "do not fit its network|damaged|cannot be built"),
        (lambda c: c["sampler"].update(theta_units={"class": "Box"}), "do not fit its network|damaged|cannot be built"),
        (lambda c: c.update(parameter_names=["a", "a"]), "Two parameter names are the same: 'a'"),
        (lambda c: c["sampler"].update(box="everywhere"), "cannot be built from what was saved"),
        (lambda c: c.update(recipe={"class": "Recipe", "network": {"class": "Own", "name": "a"}}), "needs a 'rule'"),
        (lambda c: c.update(history={"steps": 3}), "training history is damaged: 'kept_score' is missing"),
        (lambda c: c.update(history=5), "'history' must be an object"),
        (lambda c: c.update(parameter_names=["a"]), "1 parameter names for 2 parameters"),
        (lambda c: c["sampler"].pop("sampler"), "cannot be built from what was saved"),
        (lambda c: c.pop("info"), "'info' is missing"),
    ],
)
def test_a_hostile_configuration_is_refused(saved, change, message, unchecked_shapes):
    _, folder = saved
    rewritten(folder, change)
    with pytest.raises(InputError, match=message):
        Posterior.load(folder)


def test_a_pickle_in_place_of_weights_is_refused(saved, tmp_path):
    _, folder = saved
    torch.save({"a": 1}, folder / "weights.safetensors")
    digest = hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest()
    rewritten(folder, lambda c: c.update(weights=digest))
    with pytest.raises(InputError, match="not a file of weights"):
        Posterior.load(folder)


def test_an_own_embedding_comes_back_with_its_weights(tmp_path):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 5)

        def forward(self, x):
            return self.linear(x)

    posterior = make(embedding=Own())
    posterior.save(tmp_path / "p")
    with pytest.raises(InputError, match="pass it again as 'embedding'"):
        Posterior.load(tmp_path / "p")
    twin = Posterior.load(tmp_path / "p", embedding=Own())
    x = np.ones(3)
    assert torch.equal(twin.sample((20,), x=x, seed=3), posterior.sample((20,), x=x, seed=3))


def test_a_network_of_the_users_own_comes_back_with_its_weights(tmp_path):
    torch.manual_seed(0)
    posterior = Posterior(Standardized(Adapted(OwnModule(), (2,), (3,))))
    posterior.save(tmp_path / "p")
    with pytest.raises(InputError, match=r"an object of your own, 'tests\.laws\.cases\.OwnModule'"):
        Posterior.load(tmp_path / "p")
    twin = Posterior.load(tmp_path / "p", network=OwnModule())
    assert torch.equal(twin.sample((20,), x=np.ones(3), seed=3), posterior.sample((20,), x=np.ones(3), seed=3))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros(4), r"'x' must have shape \(3,\), got \(4,\)"),
        (np.zeros((2, 3)), r"'x' must have shape \(3,\), got \(2, 3\)"),
        (np.array([0.0, np.nan, 1.0]), r"'x' must be finite, got nan at \(1,\)"),
        (np.array([0.0, 0.0, np.inf]), r"got inf at \(2,\)"),
        ("words", "must be an array of numbers, got str"),
        (None, "There is no observation"),
    ],
)
def test_bad_observations_get_a_sentence(x, message):
    with pytest.raises(InputError, match=message):
        make().sample((5,), x=x)


def test_bad_batches_and_counts_get_a_sentence():
    posterior = make()
    with pytest.raises(InputError, match=r"'x' must have shape \(N, 3,\), got \(3,\)"):
        posterior.sample_batched((5,), x=np.zeros(3))
    with pytest.raises(InputError, match="'x' is empty"):
        posterior.sample_batched((5,), x=np.zeros((0, 3)))


def test_a_number_of_draws_is_a_shape_of_that_length():
    posterior = make()
    x = np.zeros(3)
    expected = posterior.sample((50,), x=x, seed=1)
    assert torch.equal(posterior.sample(50, x=x, seed=1), expected)
    assert torch.equal(posterior.sample(np.int64(50), x, seed=1), expected)
    assert torch.equal(posterior.sample(torch.Size([50]), x, seed=1), expected)
    assert posterior.sample_batched(5, np.zeros((7, 3))).shape == (5, 7, 2)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((0,), r"number of draws must be positive, got \(0,\)"),
        ((-2, -3), r"number of draws must be positive, got \(-2, -3\)"),
        (-1, "number of draws must be positive, got -1"),
        (10**12, r"1,000,000,000,000 draws for 1 observations take 8,000 GB, but the memory has .* GB"),
        ((10**6, 10**6), "ask for fewer at once"),
        (2.5, "'sample_shape' must be a number of draws or a tuple of them, got 2.5"),
        ((2.5,), "'sample_shape' must be a number of draws"),
        ("many", "'sample_shape' must be a number of draws"),
        (None, "'sample_shape' must be a number of draws"),
    ],
)
def test_impossible_sample_shapes_get_a_sentence(shape, message):
    posterior = make()
    for draw, x in ((posterior.sample, np.zeros(3)), (posterior.sample_batched, np.zeros((1, 3)))):
        with pytest.raises(InputError, match=message):
            draw(shape, x)


def test_summary_is_data_and_a_table():
    posterior = make()
    summary = posterior.summary(np.zeros(3), num_samples=500, seed=0)
    assert list(summary) == ["theta_1", "theta_2"]
    row = summary["theta_1"]
    assert row["5%"] < row["median"] < row["95%"]
    assert dict(summary) == summary == {name: summary[name] for name in summary}
    lines = str(summary).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[0].split() == ["parameter", "mean", "sd", "median", "5%", "95%"]
    assert "<td>theta_2</td>" in summary._repr_html_()
    assert "<td>parameters</td>" in posterior._repr_html_()


class Moons(Sampler):
    """Two normal clusters, the second of them narrower and so the denser one."""

    theta_shape, x_shape = (2,), (1,)

    def sample(self, m, x):
        first = torch.rand(m, len(x), 1) < 0.5
        wide = torch.tensor([-3.0, 0.0]) + 1.0 * torch.randn(m, len(x), 2)
        narrow = torch.tensor([3.0, 1.0]) + 0.2 * torch.randn(m, len(x), 2)
        return torch.where(first, wide, narrow)


def test_map_is_the_densest_draw():
    posterior = Posterior(Moons())
    best = posterior.map([0.0], seed=0)
    assert best.shape == (2,)
    assert torch.allclose(best, torch.tensor([3.0, 1.0]), atol=0.1)
    draws = posterior.sample(5000, [0.0], seed=0)
    assert (draws == best).all(1).any()
    assert posterior.map([0.0], num_samples=1).shape == (2,)


def test_two_parameters_need_two_names():
    assert checked_names(["a", "b"], (2,)) == ("a", "b")
    with pytest.raises(InputError, match="names are the same: 'a'"):
        checked_names(["a", "b", "a"], (3,))


def rewritten_weights(folder, change):
    """Forged weights: both checksums fit."""
    tensors = load_file(folder / "weights.safetensors")
    change(tensors)
    save_file(tensors, folder / "weights.safetensors")
    digest = hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest()
    rewritten(folder, lambda config: config.update(weights=digest))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(saved, bad):
    _, folder = saved
    rewritten_weights(folder, lambda tensors: tensors["sampler.sampler.out.bias"].fill_(bad))
    with pytest.raises(InputError, match=r"not all finite: 'sampler\.out\.bias' holds NaN or infinity"):
        Posterior.load(folder)


def test_what_is_not_a_file_is_not_read(saved):
    _, folder = saved
    (folder / "weights.safetensors").unlink()
    (folder / "weights.safetensors").symlink_to("/dev/zero")
    with pytest.raises(InputError, match="not a regular file"):
        Posterior.load(folder)
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(InputError, match="not a regular file"):
        Posterior.load(folder)


def test_saving_to_a_full_disk_keeps_the_old_posterior(saved, monkeypatch):
    posterior, folder = saved
    before = (folder / "weights.safetensors").read_bytes()

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("propersbi.posterior_files.write_json", full)
    with pytest.raises(OSError, match="No space left"):
        posterior.save(folder)
    assert (folder / "weights.safetensors").read_bytes() == before
    assert os.listdir(folder.parent) == ["posterior"]
    shutil.rmtree(folder)
