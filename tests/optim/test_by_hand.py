"""Each algorithm on two parameters, against numbers worked out on paper from its definition.

Unless said otherwise L(u, v) = ½u² + 2v², so g = (u, 4v), at θ = (3, 1): g = (3, 4), ‖g‖ = 5; lr is
0.1 and rho 0.5. The climb to θ + (0.3, 0.4) = (3.3, 1.4) gives g_s = (3.3, 5.6).
Tolerance 1e-14: a handful of float64 roundings of numbers below ten.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from flatlab.optim import ASAM, GSAM, MSAM, SAM, USAM, FriendlySAM, LabelNoiseSGD, LookSAM


def run(kind, steps=1, theta=(3.0, 1.0), curvature=(1.0, 4.0), shapes=((1,), (1,)), **options):
    """Return the points after each step, on L = ½(a u² + b v²)."""
    u, v = (
        torch.full(shape, value, dtype=torch.float64, requires_grad=True)
        for shape, value in zip(shapes, theta, strict=True)
    )
    optimizer = kind([u, v], lr=0.1, **options)

    def closure():
        loss = (curvature[0] * u**2).sum() / 2 + (curvature[1] * v**2).sum() / 2
        loss.backward()
        return loss

    path = []
    for _ in range(steps):
        optimizer.step(closure)
        path.append([u.item(), v.item()])
    return path


def near(*values):
    return pytest.approx(list(values), abs=1e-14)


def test_sam():
    """θ − 0.1 (3.3, 5.6)."""
    assert run(SAM, rho=0.5) == [near(2.67, 0.44)]


def test_sam_with_momentum():
    """Buffer b ← 0.9 b + g_s, starting at g_s.

    Second step from (2.67, 0.44), with rho = 0: g = (2.67, 1.76), so
    b = 0.9 (3.3, 5.6) + (2.67, 1.76) = (5.64, 6.8) and θ = (2.67 − 0.564, 0.44 − 0.68).
    """
    w = torch.tensor([3.0, 1.0], dtype=torch.float64, requires_grad=True)
    optimizer = SAM([w], rho=0.5, lr=0.1, momentum=0.9)
    scale = torch.tensor([1.0, 4.0], dtype=torch.float64)
    for _ in range(2):
        optimizer.step(lambda: (scale * w**2).sum().div(2).backward())
        optimizer.param_groups[0]["rho"] = 0.0
    assert w.tolist() == near(2.106, -0.24)


def test_usam():
    """E = 0.1 g = (0.3, 0.4), SAM's climb again; then 0.2 g = (0.6, 0.8): g_s = (3.6, 7.2)."""
    assert run(USAM, rho=0.1) == [near(2.67, 0.44)]
    assert run(USAM, rho=0.2) == [near(2.64, 0.28)]
    assert run(SAM, rho=0.2, normalised=False) == [near(2.64, 0.28)]


def test_asam():
    """L = ½(12u² + v²) at (1, 3), eta = 0: g = (12, 3), T = (1, 3), Tg = (12, 9), ‖Tg‖ = 15.

    T²g = (12, 27); e = 0.5/15 (12, 27) = (0.4, 0.9); g_s = (12 · 1.4, 3.9) = (16.8, 3.9).
    """
    found = run(ASAM, theta=(1.0, 3.0), curvature=(12.0, 1.0), rho=0.5, eta=0.0)
    assert found == [near(-0.68, 2.61)]


def test_asam_with_eta():
    """L = ½(4u² + v²) at (1, 2), eta = 1: g = (4, 2), T = (2, 3), Tg = (8, 6), ‖Tg‖ = 10.

    T²g = (16, 18); e = 0.05 (16, 18) = (0.8, 0.9); g_s = (4 · 1.8, 2.9) = (7.2, 2.9).
    """
    found = run(ASAM, theta=(1.0, 2.0), curvature=(4.0, 1.0), rho=0.5, eta=1.0)
    assert found == [near(0.28, 1.71)]


def test_asam_leaves_biases_alone():
    """L = ½(1.5u² + v²) at u = 2 (a bias), v = 2 (a weight), eta = 0: g = (3, 2), T = (1, 2).

    Tg = (3, 4), ‖Tg‖ = 5, T²g = (3, 8); e = 0.1 (3, 8) = (0.3, 0.8); g_s = (1.5 · 2.3, 2.8).
    """
    case = {"theta": (2.0, 2.0), "curvature": (1.5, 1.0), "shapes": ((1,), (1, 1))}
    found = run(ASAM, **case, rho=0.5, eta=0.0, adapt_bias=False)
    assert found == [near(1.655, 1.72)]
    assert run(ASAM, **case, rho=0.5, eta=0.0) != found


def test_asam_on_negative_weights():
    """|w|, not w, with eta: the mirror image of the problem has the mirror image of its step."""
    found = run(ASAM, theta=(-1.0, 2.0), curvature=(4.0, 1.0), rho=0.5, eta=1.0)
    assert found == [near(-0.28, 1.71)]


def test_gsam():
    """⟨g, g_s⟩ = 32.3, ‖g_s‖² = 42.25, c = 32.3/42.25 = 646/845 = 0.76449704...

    g_⊥ = g − c g_s = (3 − 2.52284023668639, 4 − 4.28118343195266)
        = (0.47715976331361, −0.28118343195266); alpha = 0.5:
    g_s − 0.5 g_⊥ = (3.06142011834320, 5.74059171597633); θ − 0.1 of it.
    """
    assert run(GSAM, rho=0.5, alpha=0.5) == [
        pytest.approx([2.693857988165680, 0.425940828402367], abs=1e-14)
    ]
    assert run(GSAM, rho=0.5, alpha=0.0) == [near(2.67, 0.44)]  # SAM


def test_gsam_radius_follows_the_learning_rate():
    """Lr = 0.1 between 0 and 0.4: rho_t = 0.1 + (1.7 − 0.1) · 0.25 = 0.5, as above."""
    found = run(GSAM, rho=1.7, rho_min=0.1, lr_max=0.4, alpha=0.5)
    assert found == [pytest.approx([2.693857988165680, 0.425940828402367], abs=1e-14)]
    # Between 0.05 and 0.25 it is the same share.
    again = run(GSAM, rho=1.7, rho_min=0.1, lr_min=0.05, lr_max=0.25, alpha=0.5)
    assert again == [pytest.approx(found[0], abs=1e-14)]


def test_look_sam():
    """First step: SAM's, to (2.67, 0.44).

    g_v = g_s − (32.3/25) g = (3.3 − 3.876, 5.6 − 5.168) = (−0.576, 0.432), ‖g_v‖ = 0.72: direction
    (−0.8, 0.6).
    Second step (k = 2, alpha = 0.5): g = (2.67, 1.76), ‖g‖ = √10.2265 = 3.197889929312765,
    g + 0.5 ‖g‖ (−0.8, 0.6) = (1.390844028274894, 2.719366978793829).
    """
    first, second = run(LookSAM, steps=2, rho=0.5, k=2, alpha=0.5)
    assert first == near(2.67, 0.44)
    assert second == near(2.530915597172511, 0.168063302120617)


def test_look_sam_climbs_every_kth_step():
    """The closure is called twice in steps 0, 3 and 6, once in the others."""
    w = torch.tensor([3.0, 1.0], requires_grad=True)
    optimizer = LookSAM([w], k=3, lr=0.01)
    calls = []

    def closure():
        calls[-1] += 1
        (w**4).sum().backward()

    for _ in range(7):
        calls.append(0)
        optimizer.step(closure)
    assert calls == [2, 1, 1, 2, 1, 1, 2]


def test_look_sam_does_not_amplify_rounding():
    """With one parameter g_s is parallel to g: nothing to remember, the other steps are SGD's."""
    w = torch.tensor([0.3], requires_grad=True)
    optimizer = LookSAM([w], k=2, alpha=1.0, rho=0.1, lr=0.1)
    optimizer.step(lambda: (w**2).sum().backward())
    before = w.item()
    optimizer.step(lambda: (w**2).sum().backward())
    assert w.item() == pytest.approx(0.8 * before, rel=1e-6)


def test_look_sam_remembers_no_rounding_of_parallel_gradients():
    """L = ½‖w‖²: g_s = (1 + rho/‖w‖) w is parallel to g = w, and their float32 difference is noise.

    Both steps are then along w: the first factor is 1 − 0.1 (1 + 0.1/‖w‖), the second 0.9.
    """
    start = torch.linspace(0.1, 0.7, 50)
    w = start.clone().requires_grad_()
    optimizer = LookSAM([w], k=2, alpha=1.0, rho=0.1, lr=0.1)
    for _ in range(2):
        optimizer.step(lambda: (w**2).sum().div(2).backward())
    expected = 0.9 * (0.9 - 0.01 / start.norm()) * start
    assert torch.allclose(w, expected, rtol=1e-5, atol=0)


def test_friendly_sam():
    """Lam = 0.5, sigma = 1. First step: m = g/2, d = g/2, which climbs as SAM: to (2.67, 0.44).

    Second: g = (2.67, 1.76), m = ½ (1.5, 2) + ½ g = (2.085, 1.88), d = (0.585, −0.12),
    ‖d‖ = √0.356625 = 0.597180877122; e = 0.5 d/‖d‖ = (0.489801350, −0.100472072).
    """
    first, second = run(FriendlySAM, steps=2, rho=0.5, lam=0.5, sigma=1.0)
    assert first == near(2.67, 0.44)
    assert second == near(2.354019864967925, 0.304188828744266)


def test_friendly_sam_without_removal_is_sam():
    assert run(FriendlySAM, steps=3, rho=0.5, sigma=0.0) == [
        pytest.approx(point, abs=1e-14) for point in run(SAM, steps=3, rho=0.5)
    ]


@pytest.mark.parametrize("method", ["vmap", "loop"])
def test_one_sam(method):
    """With f = w·x at w = (1, 1) and loss ½(f − y)², each example climbs by itself.

    x = (3, 4), y = 5: residual 2, g = (6, 8), e = (0.3, 0.4), residual 4.5, g_s = (13.5, 18).
    x = (1, 0), y = 2: residual −1, g = (−1, 0), e = (−0.5, 0), residual −1.5, g_s = (−1.5, 0).
    Mean (6, 9); the loss at w is (2 + 0.5)/2.
    """
    model = nn.Linear(2, 1, bias=False).double()
    nn.init.ones_(model.weight)
    optimizer = MSAM(
        model, lambda f, y: ((f[:, 0] - y) ** 2).mean() / 2, lr=0.1, rho=0.5, m=1, method=method
    )
    x = torch.tensor([[3.0, 4.0], [1.0, 0.0]], dtype=torch.float64)
    loss = optimizer.step(x, torch.tensor([5.0, 2.0], dtype=torch.float64))
    assert loss.item() == pytest.approx(1.25, abs=1e-14)
    assert model.weight[0].tolist() == near(0.4, 0.1)


def test_label_noise():
    """Loss ½(w − y)² at w = 1, y = 0, noise 0.5: gradient 1 ∓ 0.5, so w is 0.95 or 0.85."""
    ends = set()
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        w = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
        optimizer = LabelNoiseSGD([w], 0.5, generator, lr=0.1)
        optimizer.step(
            lambda y, w=w: ((w - y) ** 2 / 2).sum().backward(), torch.zeros(1, dtype=torch.float64)
        )
        ends.add(round(w.item(), 12))
    assert ends == {0.95, 0.85}
