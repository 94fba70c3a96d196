"""Laws of scoring rules."""

import pytest
import torch

from propersbi.scoring import EnergyScore
from propersbi.storage.config import decode, encode
from propersbi.types import InputError
from tests.laws.cases import BLIND, COMPOSED, RULES
from tests.laws.common import draws, every, z_score

TWO = {**RULES, **COMPOSED}


def scored(case, samples, theta):
    torch.manual_seed(0)  # some rules draw directions
    return case(samples, theta)


@every({name: case for name, case in TWO.items() if name != "sliced"})  # all its rows share their lines: see below
def test_rule_is_unbiased_in_m(case):
    few, many = (
        case(draws(2, 100_000, 2), draws(1, 100_000, 2, 1)[0]),
        case(draws(12, 20_000, 2, 2), draws(1, 20_000, 2, 3)[0]),
    )
    error = (few.var() / len(few) + many.var() / len(many)).sqrt()
    assert abs(few.mean() - many.mean()) < 4.5 * error


@pytest.mark.parametrize("m", [2, 12])
def test_random_lines_leave_the_energy_score_unbiased(m):
    samples, theta = draws(m, 200, 2, 2), draws(1, 200, 2, 3)[0]
    scores = torch.stack([RULES["sliced"](samples, theta).mean() for _ in range(400)])
    assert abs(z_score(scores - EnergyScore()(samples, theta).mean())) < 4


@pytest.mark.parametrize("wrong", ["narrow", "wide", "shifted", "one mode", "dependent"])
@pytest.mark.parametrize("name", TWO)
def test_rule_is_proper(name, wrong):
    m, n, case = 6, 60_000, TWO[name]
    side = lambda seed: draws(1, n, 1, seed).sign().expand(-1, -1, 2)[0] * torch.tensor([1.5, 0.0])  # noqa: E731
    truth = draws(1, n, 2, 1)[0] + side(2)
    exact = draws(m, n, 2, 3) + torch.stack([side(10 + k) for k in range(m)])
    other = {
        "narrow": 0.6 * draws(m, n, 2, 3) + torch.stack([side(10 + k) for k in range(m)]),
        "wide": 1.5 * draws(m, n, 2, 3) + torch.stack([side(10 + k) for k in range(m)]),
        "shifted": exact + 0.5,
        "one mode": draws(m, n, 2, 3) + torch.tensor([1.5, 0.0]),
        "dependent": exact + torch.tensor([0.0, 0.8]) * exact[..., :1],
    }[wrong]
    better = z_score(scored(case, other, truth) - scored(case, exact, truth))
    assert better > 5 or ((name, wrong) in BLIND and better > -5)


@every(TWO)
def test_rule_does_not_care_for_the_order_of_draws(case):
    samples, theta = draws(7, 5, 2), draws(1, 5, 2, 1)[0]
    torch.testing.assert_close(scored(case, samples.flip(0), theta), scored(case, samples, theta))


@every(TWO)
def test_rule_scores_each_row_on_its_own(case):
    samples, theta = draws(7, 5, 2), draws(1, 5, 2, 1)[0]
    rows = [scored(case, samples[:, i : i + 1], theta[i : i + 1]) for i in range(5)]
    torch.testing.assert_close(torch.cat(rows), scored(case, samples, theta))


@every(RULES)
def test_rule_flattens_events(case):
    samples, theta = draws(4, 5, 6), draws(1, 5, 6, 1)[0]
    events = scored(case, samples.unflatten(-1, (2, 3)), theta.unflatten(-1, (2, 3)))
    torch.testing.assert_close(events, scored(case, samples, theta))


@every(TWO)
def test_rule_has_the_right_gradient(case):
    samples, theta = draws(4, 3, 2).requires_grad_(), draws(1, 3, 2, 1)[0].requires_grad_()
    assert torch.autograd.gradcheck(lambda s, t: scored(case, s, t), (samples, theta))


@every(RULES)
def test_rule_has_the_right_gradient_in_many_dimensions(case):
    samples, theta = draws(4, 2, 9).requires_grad_(), draws(1, 2, 9, 1)[0].requires_grad_()
    assert torch.autograd.gradcheck(lambda s, t: scored(case, s, t), (samples, theta))


def coinciding(m, d, dtype):
    samples = torch.zeros(m, 2, d, dtype=dtype)
    samples[3:, 1] = 1.0
    return samples.requires_grad_()


@every(TWO)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rule_has_finite_gradients_where_draws_coincide(case, dtype):
    samples = coinciding(5, 2, dtype)
    case(samples, torch.zeros(2, 2, dtype=dtype)).sum().backward()
    assert torch.isfinite(samples.grad).all()


@every(RULES)
def test_rule_has_finite_gradients_where_draws_coincide_in_many_dimensions(case):
    samples = coinciding(5, 9, torch.float32)
    case(samples, torch.zeros(2, 9)).sum().backward()
    assert torch.isfinite(samples.grad).all()
    assert samples.grad.abs().max() < 10


@every(RULES)
@pytest.mark.parametrize("d", [2, 9])
def test_rule_is_exact_for_clustered_draws_far_from_the_origin(case, d):
    samples = draws(40, 3, d, scale=1e-3).float()
    near = scored(case, samples.double(), torch.zeros(3, d).double())
    offset = 64.0  # a power of two: the shifted numbers are rounded, but to the same grid in both precisions
    far = (samples + offset).float()
    expected = scored(case, far.double() - offset, torch.zeros(3, d).double())
    given = scored(case, far, torch.full((3, d), offset)).double()
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(expected, near, rtol=2e-2, atol=1e-4)


@every(TWO)
def test_rule_refuses_one_draw_and_wrong_shapes(case, unchecked_shapes):
    with pytest.raises(InputError, match="m > 1 draws, got 1"):
        case(draws(1, 4, 2), draws(1, 4, 2)[0])
    with pytest.raises(InputError, match=r"\(3, 4, 2\) do not fit theta of shape \(5, 2\)"):
        case(draws(3, 4, 2), draws(1, 5, 2)[0])


@every({name: case for name, case in TWO.items() if name != "derived"})
def test_rule_survives_json(case):
    assert decode(encode(case)) == case
