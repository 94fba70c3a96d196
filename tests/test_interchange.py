"""Draws in the hands of the real ArviZ, xarray and pandas; `make interchange` runs the same with ArviZ 0.x."""

import importlib.util

import numpy as np
import pytest
import torch

import propersbi as ps
from propersbi.interchange import write_arviz
from propersbi.networks import MLPGenerator

OLD = importlib.util.find_spec("arviz") is not None
X_O = np.array([0.3, -0.2], np.float32)


def read(path):
    import xarray

    if path.suffix == ".nc":
        return xarray.open_dataset(path, group="posterior", engine="h5netcdf")
    return xarray.open_zarr(path, group="posterior")


@pytest.fixture(scope="module")
def posterior():
    return ps.Posterior(
        MLPGenerator((2,), (2,), width=8, depth=1),
        parameter_names=["rate", "a/b"],
        x_names=["first", "second"],
        prior=torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2)),
    )


def test_groups_names_and_numbers(posterior):
    reference = np.zeros((7, 2))
    tree = posterior.to_arviz(X_O, num_samples=50, predictive=lambda theta: theta + 1, reference=reference, seed=3)
    assert type(tree).__name__ == ("InferenceData" if OLD else "DataTree")
    assert set(tree.posterior.data_vars) == {"rate", "a_b"}
    assert tree.posterior["rate"].dims == ("chain", "draw")
    draws = posterior.sample((50,), x=X_O, seed=3).numpy()
    np.testing.assert_array_equal(tree.posterior["rate"].values[0], draws[:, 0])
    np.testing.assert_allclose(tree.posterior_predictive["x"].values[0], draws + 1, rtol=1e-6)
    assert tree.posterior_predictive["x"].coords["x_dim_0"].values.tolist() == ["first", "second"]
    np.testing.assert_array_equal(tree.observed_data["x"].values, X_O)
    assert tree.prior["rate"].shape == (1, 50)
    assert tree.reference["rate"].shape == (1, 7)


def test_a_field_is_one_variable_with_its_own_axes(tmp_path):
    field = ps.Posterior(MLPGenerator((3, 20), (2,), width=8, depth=1)).set_default_x(X_O)
    tree = field.to_arviz(num_samples=5)
    assert tree.posterior["theta"].dims == ("chain", "draw", "theta_dim_0", "theta_dim_1")
    assert tree.posterior["theta"].shape == (1, 5, 3, 20)
    assert "prior" not in (tree.groups() if OLD else tree.children)


@pytest.mark.parametrize("suffix", [".nc", ".zarr"])
def test_files_are_read_by_xarray_and_replaced_as_a_whole(posterior, tmp_path, suffix):
    path = tmp_path / f"draws{suffix}"
    for count in (30, 20):
        write_arviz(path, posterior.to_arviz(X_O, num_samples=count, seed=1))
    with read(path) as draws:
        np.testing.assert_array_equal(draws["rate"].values[0], posterior.sample((20,), x=X_O, seed=1)[:, 0])
    assert list(tmp_path.iterdir()) == [path]


def test_a_data_frame_has_a_column_for_each_parameter(posterior):
    frame = posterior.to_dataframe(X_O, num_samples=12, seed=2)
    assert frame.shape == (12, 2)
    assert frame["a/b"].to_numpy() == pytest.approx(posterior.sample((12,), x=X_O, seed=2)[:, 1].numpy())


def test_ranks_are_shares_in_the_group_that_plots_of_calibration_read(posterior):
    theta = np.random.default_rng(0).normal(size=(60, 2))
    checks = ps.diagnose(posterior, theta, theta.astype(np.float32), num_samples=100, progress=False)
    shares = checks.to_arviz().prior_sbc["rate"]
    assert shares.shape == (1, 60)
    np.testing.assert_allclose(shares.values[0], (checks.arrays["ranks"][:, 0] + 0.5) / 101)
    if importlib.util.find_spec("arviz_plots") is not None:
        import arviz_plots

        arviz_plots.plot_ecdf_pit(checks.to_arviz())


def test_a_reference_of_another_shape_is_refused(posterior):
    with pytest.raises(ps.InputError, match=r"'reference' must have shape \(k, 2,\), got \(7, 3\)"):
        posterior.to_arviz(X_O, num_samples=5, reference=np.zeros((7, 3)))
