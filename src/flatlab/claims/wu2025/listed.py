"""Claims of Lei Wu's lecture on implicit bias and regularisation, 2025: listed, not checked yet.

A row of the table is a claim: its place, where it is in the slides, its kind and the statement.
"""

from __future__ import annotations

import re

from ..contract import not_yet

TABLE = """\
# Background: tables of the slides, and the noise of SGD.
table.params | Figure 1 | text | The parameter counts of image classifiers follow from their layers:
  one hidden layer of 512 units on 28×28×3 inputs and 10 classes has 1,209,866, VGG-11 132,863,336,
  ResNet-18 11,689,512
table.geiping | Figure 4 | text | 300 epochs of 50,000 images in batches of 128 are 117,000 steps,
  ⌊50000/128⌋·300
table.keskar | Tables 2 and 4 of Keskar et al. | text | Small batches have the better test accuracy
  in all six rows and the smaller sharpness in all twelve cells
table.sam | Figure 10 | text | SAM raises the SuperGLUE average at all four model sizes, though not
  the score of every task
sgd_noise | SGD = GD + noise | identity | A batch drawn with replacement gives g + ξ/√B with E ξ = 0
  and E ξξᵀ = (1/n)Σ(g_i − g)(g_i − g)ᵀ; without replacement the covariance has the factor (n −
  B)/(n − 1)
# Sharpness and generalisation: perturbations, PAC-Bayes, norms, memorising networks, SAM.
perturbation.lmax | Sharpness, first display | identity | At a minimum λ_max(∇²L) = max_{‖ε‖≤ρ}
  2(L(θ + ε) − L(θ))/ρ² + O(ρ)
perturbation.trace | Sharpness, second display | identity | At a minimum Tr ∇²L = E 2(L(θ + ε) −
  L(θ))/ρ² + O(ρ²) for ε ~ N(0, ρ²I)
perturbation.frobenius | Sharpness, third display | identity | At a minimum ‖∇²L‖_F² = E 2(L(θ + ε)
  − L(θ))/ρ² + O(ρ²) for ε ~ N(0, ρ²∇²L)
rescaling | Sharp minima can generalise well | identity | a σ(wᵀx) = (a/λ) σ(λwᵀx) for ReLU and
  every λ > 0
toy_hessian | Sharp minima can generalise well | identity | L = ½(aw − 1)² has ∇²L = [[w², 1], [1,
  a²]] where aw = 1, with eigenvalues 0 and a² + w², least at |a| = |w| = 1 and without bound
thm1_mcallester | Theorem 1 (McAllester) | probabilistic | With probability 1 − δ, for all Q: L(Q) ≤
  L̂(Q) + √((KL(Q‖P) + log(2√n/δ))/2n); with log(1/δ) alone it is false
thm2_donsker_varadhan | Theorem 2 (Donsker and Varadhan) | identity | log E_π e^V = max_p (E_p V −
  KL(p‖π)), reached at the Gibbs distribution dπ_V ∝ e^V dπ
generalised_jensen | After Theorem 2 | inequality | e^{E_p V} ≤ E_π[e^V] e^{KL(p‖π)}
hoeffding_mgf | Proof of McAllester's theorem | inequality | For a loss in [0, 1] and n independent
  examples, Δ = L − L̂ has E e^{λΔ} ≤ e^{λ²/8n}
chernoff_slide | Chernoff's bound | inequality | P(Δ ≥ t) ≤ E e^{λΔ}/e^{λt} for λ > 0
pacbayes_step | Proof of McAllester's theorem | probabilistic | For a λ fixed beforehand, with
  probability 1 − δ for all Q: E_Q Δ ≤ λ/8n + (KL(Q‖P) + log(1/δ))/λ
gauss_kl | Divergence of Gaussians | identity | KL(N(θ, σ²I)‖N(0, σ_P²I)) with σ_P² = σ² + ‖θ‖²/k,
  its minimiser, is (k/2) log(1 + ‖θ‖²/(kσ²))
thm1_flatness_bound | Theorem 1 (flatness) | inequality | L − L̂ is at most the largest rise of L̂
  within ρ = σ(√k + √log n) plus √((k log(1 + (‖θ‖²/ρ²)(1 + √(log n/k))²) + 4 log(n/δ) + Õ(1))/(n −
  1))
pacbayes_criticism | Let us criticise | identity | The complexity term k log(1 + ‖θ‖²/ρ²)/n is at
  least k/n where ‖θ‖² ≥ (e − 1)ρ², so vacuous for k ≥ n, and does not depend on the Hessian
g_vs_h | An important observation | identity | For L̂ = (1/2n)Σe_i²: H = G + (1/n)Σe_i∇²f_i with G =
  (1/n)Σ∇f_i∇f_iᵀ, the Gauss–Newton matrix; H = G at interpolation and Tr G = (1/n)Σ‖∇f_i‖²
trG_closed_form | Two-layer networks without bias | identity | For x uniform on the sphere of radius
  √d: Tr G = ½Σ_j (‖w_j‖² + d a_j²)
thm2_norm_equivalence | Theorem 2 (norms) | rate | With N_q = Σ_j (‖w_j‖² + q a_j²): Tr G ~ N_d and
  ‖G‖_F ~ N_{√d} for n ≳ N(d, δ), and ‖G‖_2 ~ N_1 for n ≳ d N(d, δ)
N_d_delta | Theorem 2 (norms) | rate | N(d, δ) = inf{n: d log(n/δ) ≤ n} grows like d log(d/δ)
path_norm | Flatness implies generalisation | inequality | Σ_j (‖w_j‖² + q a_j²) ≥ 2√q Σ_j
  |a_j|‖w_j‖, with equality if and only if ‖w_j‖ = √q |a_j|
thm3_flatness_generalises | Theorem 3 (flatness) | rate | An interpolating θ has E|f − f*|² ≲ (Tr²
  G/n) polylog(n, 1/δ) if n ≥ N(d, δ) and |f*| ≤ 1
thm4_flat_no_generalise | Theorem 4 (flat minima) | construction | With bias and m ≥ n there is a
  flattest interpolating network on xor that is zero off the training set
def1_memorising | Definition 1 | definition | A memorising solution interpolates, and every training
  point activates exactly one neuron, different points different ones
memoriser | Proof of Theorem 4, step 1 | construction | w_j = x_j/‖x_j‖, b_j = −√d/2, a_j = 2y_j/√d
  memorises only nearly orthogonal inputs, and has ‖∇f(x_i)‖² = 4(d+1)/d + d/4, above the floor
  2√(d+1)
memoriser.incoherence | Proof of Theorem 4, step 1 | probabilistic | With probability 1 − δ, n
  random points of the cube have |x̂_i·x̂_j| = O(√(log(n/δ)/d)) for all i ≠ j
step2_lower_bound | Proof of Theorem 4, step 2 | inequality | ‖∇f(x_i)‖² ≥ 2‖x'_i‖|f(x_i)| with x' =
  (x, 1), so that Tr G ≥ 2√(d+1) on interpolating networks of the cube
sam_objective | Sharpness-aware minimisation | definition | SAM's loss is L(θ) + (max_{‖ε‖≤ρ} L(θ +
  ε) − L(θ)), the largest loss in a ball
sam_epsilon | The simplification | identity | The maximiser of the linearised loss in the ball is
  ρ∇L/‖∇L‖, where ∇L ≠ 0
sam_step | eq. (1) | rate | A step θ − η∇L(θ + ρ∇L/‖∇L‖) descends L + ρ‖∇L‖ up to O(ρ²)
"""
ROWS = re.sub(r"\n +", " ", TABLE).splitlines()
LISTED = not_yet("wu2025", *(row.split(" | ") for row in ROWS if row[0] != "#"))  # type: ignore[arg-type]
