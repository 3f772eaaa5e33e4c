"""Gradient norms: against closed forms and torch's own Jacobian; the picture shows what C3 says."""

from __future__ import annotations

import pytest
import torch

from regard.look.pictures.gradients import attention, gradient_norms, gradient_plot, lstm, rnn


def test_norms_of_a_linear_recurrence_are_powers() -> None:
    """y_t = sum over s of a^(t-s) x_s, so d y_T / d x_{T-k} = a^k I, of norm a^k sqrt(D)."""
    a, D, T = 0.5, 3, 6

    def network(x: torch.Tensor) -> torch.Tensor:
        t = torch.arange(T, dtype=torch.float64)
        powers = torch.where(t[:, None] >= t, a ** (t[:, None] - t), 0.0)  # (T, T)
        return powers @ x

    norms = gradient_norms(network, torch.randn(T, D, dtype=torch.float64))
    torch.testing.assert_close(norms, D**0.5 * a ** torch.arange(T, dtype=torch.float64))


@pytest.mark.parametrize("make", [rnn, lstm, attention])
def test_norms_are_those_of_torchs_jacobian(make) -> None:
    D, T = 4, 5
    network = make(D)
    x = torch.randn(T, D, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(lambda x: network(x[None])[0, -1], x)  # (D, T, D)
    expected = [jacobian[:, T - 1 - k].norm() for k in range(T)]
    torch.testing.assert_close(gradient_norms(network, x), torch.stack(expected))


def test_the_forget_gate_is_the_one_that_is_opened() -> None:
    """torch stacks input, forget, cell and output gate; with all weights 0 a gate is sigmoid(its bias)."""
    torch.manual_seed(0)
    network = lstm(2, forget_bias=1.0)
    layer = network.__closure__[0].cell_contents
    torch.manual_seed(0)
    plain = torch.nn.LSTM(2, 2, dtype=torch.float64)
    difference = layer.bias_hh_l0 - plain.bias_hh_l0
    assert difference.tolist() == [0, 0, 1, 1, 0, 0, 0, 0]


def test_the_picture(clipped) -> None:
    before = torch.random.get_rng_state()
    figure = gradient_plot(length=40, dim=16, seeds=5)
    assert torch.equal(torch.random.get_rng_state(), before)
    axes = figure.axes[0]
    assert axes.get_yscale() == "log"
    curves = {line.get_label(): line.get_ydata() for line in axes.lines}
    assert list(curves) == ["attention", "RNN", "LSTM", "LSTM, forget bias + 1", "RNN, recurrent weights × 4"]
    assert len(axes.collections) == 5  # the bands
    assert all(len(curve) == 40 for curve in curves.values())
    near, far = 5, 35
    change = {name: curve[far] / curve[near] for name, curve in curves.items()}
    # All of them vanish; an LSTM later than an RNN, and later still with an open forget gate.
    assert change["RNN"] < change["LSTM"] < 1e-5 < change["LSTM, forget bias + 1"] < 0.1
    assert 0.2 < change["attention"] < 5  # does not depend on the distance
    assert change["RNN, recurrent weights × 4"] > 3  # explodes
    assert clipped(figure) == []


def test_bands_hold_the_line_of_every_seed() -> None:
    figure = gradient_plot(length=10, dim=8, seeds=3)
    for line, band in zip(figure.axes[0].lines, figure.axes[0].collections, strict=True):
        (path,) = band.get_paths()
        for k, value in enumerate(line.get_ydata()):
            heights = path.vertices[path.vertices[:, 0] == k, 1]
            assert heights.min() <= value <= heights.max()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 1}, "length must be at least 2, not 1"),
        ({"seeds": 0}, "seeds must be at least 1, not 0"),
        ({"dim": 6}, "dim must be a multiple of the 4 heads, not 6"),
    ],
)
def test_errors(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gradient_plot(**options)
