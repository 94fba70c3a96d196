"""Laws of embeddings of structured data: order, padding and what is hidden already mean nothing."""

import pytest
import torch

from propersbi.networks import Embedding, PartsEmbedding, SeriesEmbedding, SetEmbedding
from tests.laws.cases import EMBEDDINGS
from tests.laws.common import every

STRUCTURED = {name: case for name, case in EMBEDDINGS.items() if isinstance(case(), Embedding)}
FLEXIBLE = {name: case for name, case in STRUCTURED.items() if isinstance(case(), SetEmbedding | SeriesEmbedding)}
SETS = {name: case for name, case in STRUCTURED.items() if isinstance(case(), SetEmbedding)}


def prepared(case):
    """An embedding whose units are found on data with missing entries, and other such data."""
    torch.manual_seed(0)
    embedding = case().eval()
    x = torch.randn(200, *embedding.x_shape) * 2 + 1
    x = torch.where(torch.rand_like(x) < 0.2, torch.nan, x)
    embedding.prepare(x)
    return embedding, x[:6]


@every(STRUCTURED)
def test_missing_entries_give_finite_features_and_gradients(case):
    embedding, x = prepared(case)
    features = embedding(x)
    assert features.shape == (6, embedding.features)
    assert features.isfinite().all()
    if not list(embedding.parameters()):
        return
    features.square().sum().backward()
    assert all(weight.grad.isfinite().all() for weight in embedding.parameters())


@every(STRUCTURED)
def test_the_first_features_are_the_statistics_in_standard_units(case):
    embedding, x = prepared(case)
    statistics = embedding.statistics(x)
    assert statistics.shape == (6, len(embedding.names))
    torch.testing.assert_close(embedding(x)[:, : embedding.fixed], statistics)
    assert len(set(embedding.names)) == embedding.fixed


@every(STRUCTURED)
def test_a_hidden_entry_matters_only_by_being_hidden(case):
    embedding, x = prepared(case)
    entire = x.nan_to_num(0.5)
    hidden = torch.where(x.isnan(), torch.nan, entire)
    torch.testing.assert_close(embedding(hidden), embedding(x), rtol=0, atol=0, equal_nan=True)
    assert (embedding(entire) - embedding(x)).abs().max() > 1e-4


@every(FLEXIBLE)
@pytest.mark.parametrize("more", [1, 7, 40])
def test_padding_further_changes_nothing(case, more):
    embedding, x = prepared(case)
    padded = torch.cat([x, x.new_full((6, more, *x.shape[2:]), torch.nan)], 1)
    torch.testing.assert_close(embedding(padded), embedding(x), rtol=1e-4, atol=1e-4)


@every(SETS)
def test_the_order_of_trials_means_nothing(case):
    embedding, x = prepared(case)
    order = torch.randperm(x.shape[1])
    torch.testing.assert_close(embedding(x[:, order]), embedding(x), rtol=1e-4, atol=1e-4)


@every(FLEXIBLE)
def test_other_lengths_are_taken(case):
    embedding, x = prepared(case)
    for length in (1, 3, 100):
        rows = torch.randn(2, length, *x.shape[2:])
        assert embedding(rows).shape == embedding(x)[:2].shape
        assert embedding(rows).isfinite().all()


def test_parts_are_embedded_each_by_itself():
    embedding, x = prepared(EMBEDDINGS["parts"])
    assert isinstance(embedding, PartsEmbedding)
    changed = x.clone()
    changed[:, -1] += 1
    trials = embedding.embeddings[0].fixed
    torch.testing.assert_close(embedding(changed)[:, :trials], embedding(x)[:, :trials])
    assert not torch.equal(embedding(changed)[:, trials : embedding.fixed], embedding(x)[:, trials : embedding.fixed])
