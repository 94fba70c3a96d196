"""Laws of embeddings, critics, stopping rules, corrections, priors and tasks."""

import dataclasses

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.sequential.corrections import Rounds
from propersbi.simulation import draw
from propersbi.storage.config import decode, encode
from propersbi.storage.randomness import stream
from propersbi.training import History
from tests.laws.cases import CORRECTIONS, CRITICS, EMBEDDINGS, PRIORS, STOPPINGS, TASKS
from tests.laws.common import every

# -- embeddings


@every(EMBEDDINGS)
def test_an_embedding_gives_features_row_by_row(case):
    embedding = case().eval()
    x = torch.randn(5, *embedding.x_shape)
    features = embedding(x)
    assert features.shape == (5, embedding.features)
    rows = torch.cat([embedding(x[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(rows, features, rtol=1e-4, atol=1e-5)
    assert (embedding(x + 1) - features).abs().max() > 1e-4


@every(EMBEDDINGS)
def test_an_embedding_survives_json(case):
    embedding = case().eval()
    twin = decode(encode(embedding)).eval()
    twin.load_state_dict(embedding.state_dict())
    x = torch.randn(2, *embedding.x_shape)
    assert torch.equal(twin(x), embedding(x))


# -- critics


@every(CRITICS)
def test_a_critic_gives_one_number_per_draw(case):
    critic = case().eval()
    x, theta = torch.randn(4, 3), torch.randn(5, 4, 2)
    output = critic(theta, x)
    assert output.shape == (5, 4)
    torch.testing.assert_close(critic(theta[2], x), output[2])
    torch.testing.assert_close(critic(theta[:, 1:2], x[1:2]), output[:, 1:2])
    assert (critic(theta, x + 1) - output).abs().max() > 1e-5


# -- stopping rules


def history(scores, *, kept=10, seconds=20.0, even=0.1, spread=1e-6):
    """Scores at validations every ten steps."""
    made = History(kept_step=kept, kept_score=scores[0], seconds=seconds)
    for score in scores:
        made.steps += 10
        excess = 100.0 * (score - min(scores))
        measures = {"evenness": even, "spread": spread}
        made.record(loss=1.0, rate=1e-3, score=score, excess=excess, measures=measures)
    return made


@every(STOPPINGS)
def test_a_rule_stops_for_its_reason(case):
    rule, reason = case
    assert rule(history([1.0, 1.1, 1.2, 1.3, 1.4])) is reason
    assert reason.sentence
    assert rule(History()) is None


@every(STOPPINGS)
def test_a_rule_goes_on_while_all_is_well(case):
    rule, _ = case
    assert rule(history([1.0, 0.9, 0.8], kept=30, seconds=1.0, even=0.9, spread=1.0)) is None


@every(STOPPINGS)
def test_a_rule_depends_on_what_a_checkpoint_holds_alone(case):
    rule, _ = case
    for scores in ([1.0, 1.1, 1.2, 1.3, 1.4], [1.0, 0.9, 0.8]):
        before = history(scores)
        after = History.from_json(before.to_json())
        assert rule(after) is rule(before)


@every(STOPPINGS)
def test_a_rule_survives_json(case):
    rule, _ = case
    assert decode(encode(rule)) == rule
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.validations = 3


# -- corrections


@pytest.fixture(scope="module")
def first_round():
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(200, 2)).astype(np.float32)
    x = (theta + 0.3 * rng.normal(size=(200, 2))).astype(np.float32)
    options = {"max_steps": 20, "validate_every": 10, "refinement_steps": 1, "progress": False}
    posterior = ps.fit(theta, x, **options).set_default_x([0.5, 0.1])
    prior = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(2), 1.0), 1)
    return Rounds((prior,), (theta,), (x,), seed=0), posterior


@every(CORRECTIONS)
def test_the_first_round_needs_no_correction(case, first_round):
    rounds, _ = first_round
    corrected = case.prepare(rounds)
    assert len(corrected.data.theta) == 200
    assert corrected.data.weight is None
    assert corrected.data.wrap_sampler is None


@every(CORRECTIONS)
def test_a_proposal_can_be_simulated_and_trained_on(case, first_round):
    rounds, posterior = first_round
    proposal = case.propose(rounds, posterior)
    with stream(1) as rng:
        theta = np.asarray(draw(proposal, 100, rng), dtype=np.float32)
    assert theta.shape == (100, 2)
    assert np.linalg.norm(theta.mean(0) - [0.4, 0.1]) < np.linalg.norm(rounds.theta[0].mean(0) - [0.4, 0.1]) + 0.2
    both = Rounds((*rounds.proposals, proposal), (*rounds.theta, theta), (*rounds.x, theta), seed=0)
    corrected = case.prepare(both)
    assert 0 < len(corrected.data.theta) <= 300
    assert corrected.data.weight is None or corrected.data.weight.mean() == pytest.approx(1.0)
    assert all(np.isfinite(value) for value in corrected.facts.values())


# -- priors


@every(PRIORS)
def test_a_prior_is_drawn_from_repeatably(case):
    drawn = []
    for place in (1, 1, 2):
        with stream(0, place) as rng:
            drawn.append(np.asarray(draw(case, 20, rng)))
    assert drawn[0].shape == (20, 2)
    assert np.isfinite(drawn[0]).all()
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


@every(PRIORS)
def test_draws_lie_in_the_support_that_is_found(case):
    with stream(0, 1) as rng:
        theta = torch.as_tensor(np.asarray(draw(case, 500, rng)), dtype=torch.float64)
    support = ps.samplers.support_of(case)
    torch.testing.assert_close(support(theta).double(), theta, rtol=1e-5, atol=1e-6)


# -- tasks


@every(TASKS)
def test_a_task_is_a_problem_with_observations(case):
    task = ps.tasks.get(case)
    assert isinstance(task, ps.Problem)
    rng = np.random.default_rng(0)
    theta = task.prior.sample(3, rng)
    assert theta.shape == (3, *task.theta_shape)
    x = task.simulate(theta, rng)
    assert x.shape == (3, *task.x_shape)
    assert task.observation(1).shape == task.x_shape
    assert task.true_parameters(1).shape == task.theta_shape
