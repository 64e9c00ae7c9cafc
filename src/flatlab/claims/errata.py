"""Errata: what is printed wrongly in the sources, and what is right.

The claims that decide an erratum name it in `Claim.errata`; their checks compute the printed and
the corrected version. This file only words them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from . import claims
from .contract import Claim


@dataclass(frozen=True)
class Erratum:
    """A misprint, a slip or a gap: what is printed, what is right, and why it matters.

    Its `kind` is "numeric" if a computation decides it, "text" if only words are wrong.
    """

    id: str
    source: str
    place: str
    printed: str
    right: str
    matters: str
    kind: Literal["numeric", "text"] = "numeric"

    @property
    def decided_by(self) -> tuple[Claim, ...]:
        """The claims whose checks decide it."""
        return tuple(claim for claim in claims().values() if self.id in claim.errata)


_WEN = (
    ("E1", "eq. (5), Section 4.1",
     "r = (d² + 1)^¼, W₂[2i + j], and the text says that Equation (5) can hold.",
     "r = (d + 1)^¼, W₂[2i + j + 1], and the text means Equation (4).",
     "With the printed r the generalising network is far from flattest, and Scenario II would lose "
     "its example."),
    ("E2", "Lemma A.3",
     "Tr ∇²L ≥ ‖W₂‖² + ‖γ‖², with a_i where relu(a_i) is meant.",
     "Tr ∇²L ≥ 2(‖W₂‖² + ‖γ‖²), with infimum 8 under Condition 1.",
     "Compared with the printed floor 4, the trace 8 of a flattest network looks twice too large."),
    ("E3", "Definition A.2",
     "The smoothed logistic loss gives weight p to the label and 1 − p to its opposite.",
     "Weight 1 − p to the label and p to its opposite, so that the loss is least at f = (2b − 1) "
     "log((1 − p)/p).",
     "As printed, training on the loss learns every label's opposite."),
    ("E4", "Lemma A.13, eq. (19)",
     "Tr ∇²L = (1/(p(1 − p)))·(1/n) Σ ‖∇f‖², with a stray Tr ∇²f in the fourth line.",
     "Tr ∇²L = p(1 − p)·(1/n) Σ ‖∇f‖², without it.",
     "The floors of the logistic figures are off by the factor 1/(p(1 − p))²."),
    ("E5", "Section 2 and the remark after Theorem 3.1",
     "The zero-one error is Pr(y f(x) > 0).",
     "The zero-one error is Pr(y f(x) ≤ 0): an output of 0 is an error.",
     "As printed a perfect network has error 1. And if f = 0 were no error, a memorising network "
     "would make none."),
    ("E6", "Lemma A.1, construction",
     "Output weights ½ for all four neurons; rows of zeros for the others.",
     "Output weights (−1)^{i+j}/2; neurons that are not used must still be alive, or their "
     "normalisation is 0/0.",
     "The printed network is constant and interpolates nothing."),
    ("E7", "Proposition A.1, eq. (16)",
     "r_j² = |y_j|(R² + 1), and first-layer rows r_j v_j.",
     "r_j² = |y_j|√(R² + 1), and rows r_j w_j; a point with y_j = 0 needs no neuron.",
     "As printed the network does not interpolate unless ‖v_j‖ = 1, and is then not flattest."),
    ("E8", "Lemma A.19, eqs. (21)–(22)",
     "E v₁⁴ = 3/((d + 2)(d + 4)) on the unit ball, and constants that follow from it.",
     "On the sphere E v₁⁴ = 3/(d(d + 2)), and a lost factor 24: E‖x‖⁴ ≤ 8d(d + 2)(e^{σ²/2} − 3/2), "
     "Pr(‖x‖² > d/2) ≥ d/(32(d + 2)(e^{σ²/2} − 3/2)).",
     "The printed bounds are broken by Gaussian inputs and by the cube; the lemma survives with "
     "other constants."),
    ("E9", "Proposition A.2, eq. (17)",
     "A width-n network on the circle that interpolates, is flattest and errs by O(δ²).",
     "Each printed neuron fires on half the circle. A flattest network with vanishing error exists "
     "with width 3n: two more neurons in each gap, inactive on the training set. Also (a + b)² ≤ "
     "2a² + 2b², and n ≥ N log(N/δ).",
     "The printed network does not interpolate, so the proposition has no proof at width n."),
    ("E10", "Theorem 5.1, proof",
     "The case of a saturated neuron begins at √(‖x‖² + 1)|y| > ε.",
     "It begins at ε/2, where the two branches of Lemma A.12's minimum meet.",
     "Between ε/2 and ε the printed network has up to twice the smallest trace."),
    ("E11", "Theorems 4.1 and 5.1",
     "Labels y_i = 0 are allowed.",
     "They must be excluded: at such a point a memorising network activates a neuron, and a "
     "flattest network does not.",
     "With any zero label no memorising network is flattest."),
    ("E12", "Propositions 4.1 and 5.1",
     "The memorising network's error is max{1 − n/2^d, 0}.",
     "It is 1 − (number of distinct inputs)/2^d, for independent draws (1 − 2^{−d})^n on average.",
     "Independent draws repeat points: at n = 2^d the printed error is 0, and the true one about a "
     "third."),
    ("E13", "Propositions 4.2 and 5.2",
     "For any n there is a generalising network of width n.",
     "The construction needs n ≥ 4; widths 1 and 2 cannot represent xor at all.",
     "The statement is false for n ≤ 2."),
    ("E14", "Theorem 3.2 and Lemma A.1",
     "The first-layer weights of every neuron vanish beyond the second coordinate.",
     "Those of every neuron with γ_i W₂,ᵢ ≠ 0.",
     "A neuron without effect costs nothing and may point anywhere."),
    ("E15", "Lemma A.2",
     "‖W₁,ᵢ[3:d]‖ ≤ ε, and equality of the means at γ = W₂.",
     "‖W₁,ᵢ[3:d]‖ ≤ ε‖W₁,ᵢ‖, and at |γ| = |W₂|, as γ = W₂ would force f ≥ 0.",
     "Simplified BatchNorm does not see the scale of a neuron, so no absolute bound can hold."),
    ("E16", "Section 2, simplified BatchNorm",
     "γ is a number.",
     "γ is a vector with one entry a neuron, as Appendix A.1 uses it.",
     "With one number for all neurons every interpolating network approaches the same trace, and "
     "Theorem 3.2 is false."),
    ("E17", "eqs. (3), (4) and (18), Lemma A.12",
     "(4) without sign(y_i), (3) with an indicator of W₁x_i, (18) with i, j ∈ [2], b_i.",
     "(4) with sign(y_i), (3) with W₁′x_i′, (18) with i, j ∈ {0, 1} and place 2i + j + 1, b₁.",
     "As printed the condition for equality fails at every negative label."),
    ("E18", "Lemma A.5",
     "By symmetry a half-space has probability ½; for all w; with thresholds ‖z_i‖² ≥ ½.",
     "Symmetry gives at most ½, and ¼ is reached on the cube; w ≠ 0; the threshold is εd; and δ "
     "must stand elsewhere in the Chebyshev branch.",
     "The constant of the lemma is at most ¼ on the cube, where its proof uses ½."),
    ("E19", "Lemma A.8, proof",
     "Rademacher variables c_i.",
     "Variables that are 0 or 1 with probability ½ each.",
     "For Rademacher variables the event that should be rare is almost certain."),
    ("E20", "Lemma A.6, proof",
     "A net of at most 128^d points, and ‖w − w_k‖ ≤ 1/32.",
     "(2·64 + 1)^d = 129^d points, and ‖w − w_k‖ ≤ 1/64.",
     "With 1/32 the lower bound that is proved is 0."),
    ("E21", "Lemma A.4 and its proof",
     "max ‖x_i‖² = Õ(√d), a last step with “=”, and “⊆ Õ”.",
     "max ‖x_i‖² = Õ(d), “≥”, and “≤ Õ”.",
     "On the cube ‖x‖² is d exactly."),
    ("E22", "Lemma A.11, display",
     "Derivatives of L, and a second sum without 2/n.",
     "Derivatives of f, and 2/n before both sums.",
     "The printed right-hand side is not the trace."),
    ("E23", "Theorem A.1, truncation",
     "E[(f − y)² 1(|f − y| ≥ c)] ≤ 2E[f² 1(|f| ≥ c)] + 2E[y² 1(|y| ≥ c)].",
     "The same with 4 for 2 and c/2 for c on the right.",
     "f = 0.6c and y = −0.6c leave 0 on the printed right-hand side."),
    ("E24", "Lemmas A.24 and A.25",
     "E‖Σ σ_i x_i‖ = √(Σ ‖x_i‖²), and a maximum over k ∈ [n].",
     "“≤”, and a maximum over k ∈ [m].",
     "Only the inequality is needed, and only it is true."),
    ("E25", "Corollary A.1 and Lemma A.18",
     "R_S ≤ √(4 VC log n / n) for every n; the proof of A.18 ends with d/n.",
     "For n ≥ 2, as log 1 = 0; it ends with σ²d/n.",
     "At n = 1 the printed bound is 0 and the complexity is not."),
    ("E26", "Lemma A.1, proof",
     "a_{4k+1} + a_{4k+4} = 2b₁.",
     "a_{4k+1} + a_{4k+4} = 2(b₁ + W₁[3:d]·s_k).",
     "The step fails for general weights; the argument after it needs only that the two pairs have "
     "the same sum."),
    ("E27", "Appendix B.2",
     "The ball of radius √d is taken for inputs with covariance I and for extreme points.",
     "Its covariance is d/(d + 2)·I; radius √(d + 2) gives I. A point may lie in the convex hull "
     "of the others.",
     "The experiment violates Condition 2, and may violate the assumption of extreme points."),
    ("E28", "titles, captions and tables",
     "Section 4: SAM finds the “Former”; captions where “flatness decreases”, or that say "
     "“gradient descent” where Table 2 has batch size 1 or 10; “P_cor”; Proposition 5.1 “as in "
     "Theorem 4.1”.",
     "“Latter”; sharpness decreases; stochastic gradient descent; P_xor; Theorem 5.1.",
     "The title of Section 4 says the opposite of the section.",
     "text"),
    ("E29", "Lemma 4.1 and Theorem 3.1",
     "The trace identity is stated for differentiable f.",
     "It needs f twice differentiable at θ; on kinks of ReLU a trace is a convention.",
     "The flattest networks without bias sit on kinks, where the formal trace jumps by √2."),
)  # fmt: skip
_KAUR = (
    ("K1", "Appendix A.1, bound",
     "max_{‖ε‖≤ρ} (gᵀε + ½εᵀHε) ≤ ρ‖g‖ + ½ρ²λ_max.",
     "The same with max(λ_max, 0).",
     "As printed the bound fails where all curvature is negative."),
    ("K2", "Appendix A.1",
     "ε̂ᵀ∇L(w)ε̂ ≤ λ_max, twice.",
     "ε̂ᵀ∇²L(w)ε̂ ≤ λ_max.",
     "A gradient is not a quadratic form.",
     "text"),
    ("K3", "Section 3.5",
     "λ_max of normalised networks is “lower higher” at small learning rates.",
     "“lower”, as the sentence after it requires.",
     "As printed the sentence has no meaning.",
     "text"),
)  # fmt: skip
_WU = (
    ("W1", "What affects the stability of SGD",
     "f_i = ½min(x², c_i(x − 1)²), c = (0.1, 1.9): SGD with η = 0.7 leaves x = 1.",
     "The same without the ½, as on the next slide.",
     "With the ½ the factors at x = 1 are 0.93 and −0.33, both stable: no run leaves."),
    ("W2", "Theorem 4, step 1: the memorising network",
     "With b_j = −√d/2 each training point activates one neuron, and f is 0 off the training set, "
     "so the error is 1 − n/2^d.",
     "So it is for nearly orthogonal inputs only. With thresholds just below ‖x_j‖ it is for all "
     "distinct points of the cube.",
     "At d = 30 and n = 100, the size of the experiments of Wen, Li & Ma, the printed network "
     "neither interpolates nor vanishes elsewhere."),
    ("W3", "Theorem 4, step 1: incoherence",
     "sup_{i,j} |x̂_i·x̂_j| ≤ log(n/δ)/n with probability 1 − δ.",
     "max_{i≠j} |x̂_i·x̂_j| ≤ 2√(log(n/δ)/d).",
     "The printed bound does not contain d, and i = j gives 1. More points make overlaps larger, "
     "not smaller."),
    ("W4", "Theorem 4, step 2",
     "The memorising network of step 1 is flattest.",
     "‖∇f(x_i)‖² = 4(d + 1)/d + d/4 for it, above 2√(d + 1) but for d ≈ 16.9. Its layers must be "
     "balanced.",
     "As printed it is about √d/8 times as sharp as the floor in high dimension."),
    ("W5", "Towards a necessary condition",
     "E L(θ_{t+1}) ≈ L(θ_t − η∇L) + (η²/B) Tr(HΣ).",
     "The last term is (η²/2B) Tr(HΣ), as the proof of Theorem 3 has it.",
     "With the printed term the bound of Theorem 3 would be smaller by √2."),
    ("W6", "Proof of McAllester's theorem: Chernoff's bound",
     "P(Δ ≥ t) ≥ E e^{λΔ}/e^{λt}.",
     "“≤”.",
     "The proof needs an upper bound of the probability."),
    ("W7", "Theorem 1 (McAllester) and its proof",
     "L(Q) ≤ L̂(Q) + √((KL(Q‖P) + log(1/δ))/2n) for all Q at once; “optimizing λ completes the "
     "proof”.",
     "log(2√n/δ) in the place of log(1/δ). The bound at one λ holds for all Q, but the best λ "
     "depends on Q and so on the sample. KL(Q‖P) must stay inside the mean over samples.",
     "With one example, two hypotheses and δ = 0.98104 the printed bound fails for every sample."),
    ("W8", "Theorem 1 (flatness bound)",
     "The largest rise of L̂ within σ, any ρ > 0, (1 + √(log n/k)), and /n.",
     "The largest rise within ρ = σ(√k + √log n), (1 + √(log n/k))², and /(n − 1).",
     "The noise leaves the ball of radius σ almost surely. And with ρ free, a table that memorises "
     "random labels violates the bound."),
    ("W9", "Theorem 2 (norms) and the path norm",
     "‖θ‖_{2,q} = √(Σ_j (‖w_j‖² + q a_j²)).",
     "The same without the root, as the formulas after the definition use it.",
     "Tr G is homogeneous of degree 2 in θ, the printed norm of degree 1."),
    ("W10", "Theorem 3 (flatness implies generalisation)",
     "E|f − f*|² ≲ (Tr² G/n) poly(n, 1/δ).",
     "(Tr² G/n) polylog(n, 1/δ).",
     "poly(n) may be n, and then the right-hand side does not fall with n."),
    ("W11", "An important observation",
     "G = (1/n)Σ∇f_i∇f_iᵀ is called the empirical Fisher matrix.",
     "It is the Gauss–Newton matrix. The empirical Fisher matrix (1/n)Σe_i²∇f_i∇f_iᵀ is 0 at "
     "interpolation.",
     "The two differ most where the lecture uses G, at interpolating minima."),
    ("W12", "High-dimensional cases",
     "λ_max((I − ηH)² + η²(n − B)/(B(n − 1)) Σ) ≤ 1 is the condition of stability, and "
     "s ≤ (1/η)√(B(n − 1)/(n − B)) is necessary for it.",
     "The condition is sufficient. Exact is ρ(E[(I − ηH_B)⊗(I − ηH_B)]) ≤ 1, and the bound of s is "
     "necessary for the condition only.",
     "A minimum outside the printed region may be stable: SGD may select it."),
    ("W13", "The key observation; Why is the alignment satisfied?",
     "Tr(ΣG) = (1/n)Σe_i²‖g_i‖_G², and there is a constant μ_0 > 0 with μ(θ) ≥ μ_0.",
     "Tr(ΣG) = (1/n)Σe_i²‖∇f_i‖_G² − ∇LᵀG∇L. There is no constant for every model: equal gradients "
     "of all examples give μ = 0.",
     "Theorems 3 and 4 need μ_0 as an assumption on the model."),
    ("W14", "Proposition 2",
     "μ ≳ 1/d for every target and number of features.",
     "For a target that the features can represent.",
     "A label where no feature is active adds loss and no noise: μ can be 0."),
    ("W15", "The linear stability analysis",
     "θ_{t+1} − θ* = (I − ηH)^t (θ_0 − θ*).",
     "(I − ηH)^{t+1}.",
     "At t = 0 the printed formula says that gradient descent does not move."),
    ("W16", "The noise of SGD and eq. (6)",
     "Noise of covariance Σ/B on the one slide, (n − B)/(B(n − 1)) in the other's formula.",
     "Σ/B is for batches drawn with replacement; (n − B)/(B(n − 1)) Σ for batches without.",
     "At B = n the two differ most: without replacement there is no noise."),
    ("W17", "Numbers and words of the slides",
     "Two Theorems 1, 2, 3 and 4; reference [7] is not in the list; “a slight modification of the "
     "input distribution” lets flat minima fail; g_i is ∇ℓ_i at first and ∇f_i later; noise of "
     "covariance 2LG and 2σ²LI.",
     "The ids here carry a word to tell the theorems apart; [7] is Wen, Li & Ma; what changes is "
     "the bias of the network; two names for the two gradients; 2LG/B and 2σ²LI/B, as the bounds "
     "√B/η and √(mB)/η need.",
     "On the same inputs flattest networks without bias generalise. Without the 1/B the batch size "
     "would have no effect.",
     "text"),
)  # fmt: skip

ERRATA: dict[str, Erratum] = {
    id: Erratum(id, source, *rest)  # type: ignore[arg-type]
    for source, table in (("wen2023", _WEN), ("kaur2022", _KAUR), ("wu2025", _WU))
    for id, *rest in table
}
