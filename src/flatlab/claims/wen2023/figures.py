"""Figures, tables, titles and next checks: decided by training, or about words and numbers."""

from __future__ import annotations

import numpy as np

from ...data import ball
from ...measures.norms import PathNorm
from ...models import TwoLayer
from ...theory.solution import Solution
from ...theory.table2 import COLUMN_NORMS, NEURONS, TABLE2
from ..contract import Trial, by_experiment, claim, not_checkable, printed
from ..instances import reading
from ..lines import Lines, at_most, equal, near_zero, true

DESCENT = {"1": "1a", "4": "4a", "5": "5a", "8": "8a", "9": "9a", "11": "11a"}
"""Figures whose caption says gradient descent with weight decay, and the panel that shows it."""


@claim("wen2023.table2", "Table 2", "text",
       "26 rows of hyper-parameters; the rows without an ascent are full-batch gradient descent (n "
       "= 100) in Figures 1a and 4a, and SGD with batch size 1, 10, 1 and 1 in 5a, 8a, 9a and 11a",
       as_printed="the captions of Figures 5, 8, 9 and 11 say gradient descent", errata=("E28",),
       note="Whether the epochs of several rows of one panel are to be added is "
       "unsaid.")  # fmt: skip
def hyperparameters(trial: Trial) -> Lines:
    yield equal("rows", len(TABLE2), 26)
    ascents = [row for row in TABLE2 if row.rho]
    one_sam = sum(row.batch_size == 1 and row.weight_decay == 0 for row in ascents)
    yield equal("of 20 rows with an ascent: batch size 1, no weight decay", one_sam, len(ascents))
    decayed = sum(row.weight_decay > 0 for row in TABLE2 if row not in ascents)
    yield equal("of 6 rows without an ascent: weight decay", decayed, len(DESCENT))
    sizes = {row.figure: row.batch_size for row in TABLE2 if row.rho == 0}
    descents = {figure: sizes[panel] for figure, panel in DESCENT.items()}
    full = [figure for figure, size in descents.items() if size == 100]
    yield equal("Figures whose descent has the full batch: 1 and 4", len(full), 2)
    for figure, size in descents.items():
        if figure not in full:
            yield printed(equal(f"batch size of the descent of Figure {figure}", size, 100))


fig1 = by_experiment("wen2023.fig1", "Figure 1",
    "Without bias (d=30, n=100, m=500) gradient descent with weight decay and 1-SAM both reach "
    "test error 0 while the sharpness Tr ∇²L falls",
    note="The caption says that the flatness decreases; it is the sharpness. Tr lies above the "
    "kinks' floor 4√30 = 21.91.")  # fmt: skip
fig2a = by_experiment("wen2023.fig2a", "Figure 2a",
    "With simplified BatchNorm 1-SAM generalises without Condition 1, and the largest neurons of "
    "the first layer align with ±x1 ± x2", "wen2023/fig2")  # fmt: skip


@claim("wen2023.fig2b", "Figure 2b and the text of Section 3.2", "text",
       "The four largest neurons are c1 x1 + c2 x2 with |c1| = |c2| to three digits, one for each "
       "pair of signs, and their entries are consistent with the printed column norms 42.47 and "
       "42.48",
       note="Consistency of the printed numbers; that training gives such neurons is Figure "
       "2a's.")  # fmt: skip
def largest_neurons(trial: Trial) -> Lines:
    first, second, rest = np.array(NEURONS).T
    sizes = np.linalg.norm(NEURONS, axis=1)
    gap = np.max(np.abs(np.abs(first) - np.abs(second)) / np.abs(first))
    yield at_most("largest ||W[1]| − |W[2]||/|W[1]|: half a unit of the third digit", gap, 5e-4)
    yield at_most("largest ‖W[3:d]‖/‖W‖", np.max(rest / sizes), 2e-3)
    yield equal("different pairs of signs", len({*zip(first > 0, second > 0, strict=True)}), 4)
    yield true("they are listed by decreasing norm", bool(np.all(np.diff(sizes) < 0)))
    for name, column, norm in zip(
        ("first", "second"), (first, second), COLUMN_NORMS[:2], strict=True
    ):
        yield at_most(f"norm of the four entries, {name} column", np.linalg.norm(column), norm)
        # No entry outside the table can exceed the norm of the smallest neuron in it.
        others = (norm**2 - column @ column) / sizes.min() ** 2
        yield at_most(f"fewest further neurons that the {name} column needs, of 496", others, 496)


fig4 = by_experiment("wen2023.fig4", "Figure 4",
    "With bias 1-SAM ends flatter than gradient descent with weight decay, near the floor 4√31 = "
    "22.27, and generalises worse; its test error rises again late in training")  # fmt: skip
fig5 = by_experiment("wen2023.fig5", "Figure 5",
    "With bias and softplus 1-SAM ends flatter than gradient descent with weight decay and "
    "generalises worse", note="No floor is known for softplus.")  # fmt: skip
fig6 = by_experiment("wen2023.fig6", "Figure 6",
    "With simplified LayerNorm 1-SAM generalises, both from a first layer scaled down by 100 (6a) "
    "and with ‖(W1, b1)‖ kept at 10 (6b); Tr tends to the floor 2")  # fmt: skip
reaches_bound = by_experiment("wen2023.sec6.reaches_bound", "Section 6",
    "Where the floor of Tr ∇²L is known, 1-SAM approximately reaches it: 4√(d+1) with bias, 2 for "
    "Sim-LN, Theorem 4.1's for deeper networks", "beyond/global",
    note="For Sim-BN without Condition 1 interpolators flatter than the xor network are "
    "known.")  # fmt: skip
fig7 = by_experiment("wen2023.fig7", "Figure 7 and Section B.2",
    "On the ball of radius √10 (d=10, n=100, y = |x1| − |x2|) 1-SAM generalises without bias and "
    "not with it")  # fmt: skip


@claim("wen2023.fig7.target", "Section B.2", "identity",
       "The target |x1| − |x2| is the network relu(x1) + relu(−x1) − relu(x2) − relu(−x2) without "
       "bias, of path norm Σ‖W1_j‖|W2_j| = 4")  # fmt: skip
def ball_target(trial: Trial) -> Lines:
    data = ball(d=10, n=100, seed=int(trial.rng("ball").integers(2**31)), n_test=2000)
    W1 = np.zeros((4, 10))
    W1[[0, 1, 2, 3], [0, 0, 1, 1]] = [1, -1, 1, -1]
    params = {"W1": W1, "W2": np.array([1.0, 1.0, -1.0, -1.0])}
    net = Solution(TwoLayer(width=4, bias=False), params, data)
    gap = net.outputs(data.x_test) - data.y_test
    yield near_zero("largest |f − y| on 2,000 drawn points, d=10", gap, 1e-12)
    yield equal("its path norm", reading(PathNorm(), net), 4.0)
    yield at_most("largest ‖x‖²/d of them", np.max(np.sum(data.x_test**2, 1)) / 10, 1.0)


fig8 = by_experiment("wen2023.fig8", "Figure 8",
    "As Figure 1 with the logistic loss, p = 0.2: both algorithms generalise perfectly",
    note="The kinks' floor is 2p(1−p)γ_p√30 = 2.430. The caption says that the flatness decreases; "
    "it is the sharpness.")  # fmt: skip
fig9 = by_experiment("wen2023.fig9", "Figure 9",
    "As Figure 4 with the logistic loss, p = 0.2: 1-SAM ends flatter, generalises much worse and "
    "degrades late in training", note="The floor is 2p(1−p)γ_p√31 = 2.470.")  # fmt: skip
fig10 = by_experiment("wen2023.fig10", "Figure 10",
    "With the logistic loss, p = 0.2, 1-SAM generalises nearly perfectly with simplified BatchNorm "
    "and with simplified LayerNorm",
    note="The floors are 4p(1−p)γ_p = 0.887 under Condition 1 and p(1−p) = 0.16.")  # fmt: skip
fig11 = by_experiment("wen2023.fig11", "Figure 11 and Section B.4",
    "With three layers and a bias in the first, 1-SAM ends flatter than the baseline and "
    "generalises much worse", note="The floor is 6·31^{1/3} = 18.85.")  # fmt: skip
runtime = not_checkable("wen2023.runtime", "Section B.1", "text",
    "Training took 8 NVIDIA 2080 GPUs about 12 hours for 10^5 epochs",
    "A time on other machines with other code.")  # fmt: skip
titles = not_checkable("wen2023.titles", "Titles of Sections 4 and 5, captions", "text",
    "Section 4: both flattest generalising and non-generalising models exist, and SAM finds the "
    "latter. Section 5: it finds the generalising ones",
    "Only words are wrong; Sections 4.2 and 5.2 say it rightly.",
    as_printed="Section 4's title ends in 'SAM Finds the Former'. The captions of Figures 1 and 8 "
    "have the flatness decrease; those of Figures 5, 8, 9 and 11 say gradient descent where Table "
    "2 has batch sizes 1, 10, 1 and 1; Proposition 5.1 refers to Theorem 4.1 instead of 5.1",
    errata=("E28",))  # fmt: skip
next_check_1 = by_experiment("summary001.next_check.1", "Summary, next check 1",
    "Whether the three scenarios hold for ReLU networks of three and more layers on xor, where "
    "Theorem 4.1 gives the floor 2D(d+1)^{1/D}", "beyond/depth")  # fmt: skip
next_check_2 = by_experiment("summary001.next_check.2", "Summary, next check 2",
    "Whether they hold with the usual BatchNorm and LayerNorm, which subtract the mean",
    "beyond/standard-norms",
    note="No floor of the trace is known for these.")  # fmt: skip
next_check_3 = by_experiment("summary001.next_check.3", "Summary, next check 3",
    "Whether they hold for another distribution, the parity of k coordinates",
    "beyond/parity-k")  # fmt: skip
