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
# Stability: what gradient descent and SGD can converge to, and how fast they leave.
gf_stability | Stability of gradient flow | identity | Of the critical points gradient flow is
  stable at minima and leaves saddles: perturbations evolve by e^{−Ht}
gd_stability | The linear stability analysis | identity | ‖I − ηH‖ ≤ 1 for H ⪰ 0 if and only if λ_1
  ≤ 2/η; otherwise θ_t − θ* grows like |1 − ηλ_1|^t
table_eos | Table 1 | text | The sharpness of GD's solutions is at most 2/η in all nine cells, and
  close to it in all but FashionMNIST at η = 0.01
two_functions | What affects the stability of SGD | identity | With f_i = min(x², c_i(x − 1)²), c =
  (0.1, 1.9) and η = 0.7, GD has the factor −0.4 at both minima while SGD leaves x = 1, where its
  factors are 0.86 and −1.66
fixed_points | Linear stability of SGD | identity | For smooth ℓ_i ≥ 0, L = 0 implies ∇ℓ_i = 0 for
  all i: global minima are fixed points of SGD
sgd_eq2_to_eq5 | eqs. (2) to (5) | identity | On (1/2n)Σa_i x² with batch size 1, E x' = (1 − ηa) E
  x and E x'² = ((1 − ηa)² + η²s²) E x², a and s being the mean and deviation of a_i
sgd_stability_eq6 | eq. (6) | identity | With batches of B drawn without replacement, x = 0 is
  stable in the mean square if and only if (1 − ηa)² + η²(n − B)/(B(n − 1)) s² ≤ 1
sgd_highdim | High-dimensional cases | inequality | λ_max((I − ηH)² + η²(n − B)/(B(n − 1)) Σ) ≤ 1 is
  sufficient for stability in the mean square; exact is a spectral radius of E[(I − ηH_B)⊗(I −
  ηH_B)] of at most 1
sgd_necessary | High-dimensional cases | inequality | a ≤ 2/η is necessary for stability; s ≤
  (1/η)√(B(n − 1)/(n − B)) only for the sufficient condition, not for stability
selection_diagram | The selection diagram | identity | In one dimension the stable pairs of
  sharpness a and non-uniformity s fill the region (1 − ηa)² + η²(n − B)/(B(n − 1)) s² ≤ 1
fig16 | Figure 16 | empirical | The minima that SGD selects lie in the stable region of sharpness
  and non-uniformity
fig17 | Figure 17 | empirical | Over many trained networks the non-uniformity is nearly proportional
  to the sharpness
noise_taylor | Towards a necessary condition | identity | On a quadratic E L(θ_{t+1}) = L(θ_t − η∇L)
  + (η²/2B) Tr(HΣ)
decoupling | The alignment property | rate | Σ = (1/n)Σe_i²∇f_i∇f_iᵀ − ∇L∇Lᵀ is close to 2LG where
  e_i² and ∇f_i are independent and ∇L is small
alignment_defs | eqs. (7) to (9) | definition | α = Tr(ΣG)/(‖Σ‖_F‖G‖_F) ≤ 1, β = ‖Σ‖_F/(2L‖G‖_F) and
  μ = αβ = Tr(ΣG)/(2L‖G‖_F²)
mu_ge_mu0 | The key observation | empirical | In training μ stays above a positive constant, though
  not for every model: equal gradients of all examples give μ = 0
tr_sigma_G | Why is the alignment satisfied? | identity | Tr(ΣG) = (1/n)Σe_i²‖∇f_i‖_G² − ∇LᵀG∇L, and
  (1/n)Σ‖∇f_i‖_G² = ‖G‖_F²
gamma_bound | Why is the alignment satisfied? | inequality | Without the term ∇L∇Lᵀ in Σ, μ ≥ γ =
  min_i ‖∇f_i‖_G²/((1/n)Σ‖∇f_i‖_G²)
residual_uniformity | Why is the alignment satisfied? | identity | Equal ‖∇f_i‖_G give μ = 1 for any
  residuals, without the term ∇L∇Lᵀ in Σ; equal residuals are not needed
prop1_linear_nets | Proposition 1 | identity | For deep linear networks, x ~ N(0, S), n = ∞ and a
  linear target: Σ = 2LG + ∇L∇Lᵀ, so μ ≥ 1
prop2_random_features | Proposition 2 | rate | For random ReLU features on the sphere, a target they
  can represent and n ≳ d⁵ log(1/δ): μ ≳ 1/d for all θ
thm3_stability | Theorem 3 (stability) | inequality | At a linearly stable minimum where the noise
  has μ ≥ μ_0: ‖H‖_F ≤ (1/η)√(B/μ_0)
thm3.step | Proof of Theorem 3 | inequality | For linearised SGD E L_{t+1} ≥ (η²/2B) E Tr(HΣ) =
  (η²/B)‖H‖_F² E μL_t
gd_fro_bound | Comparison with GD | inequality | λ_1 ≤ 2/η gives ‖H‖_F ≤ √rank(H) λ_1 ≤ 2√n/η at
  interpolation
geometry_vs_isotropic | The importance of noise structure | inequality | Stability under noise of
  covariance 2LG/B needs ‖H‖_F ≤ √B/η; under isotropic noise of the same variance Tr H ≤ √(mB)/η
  with m parameters
thm4_escape | Theorem 4 (escape) | inequality | If ‖H‖_F > (1/η)√(B/μ_0), linearised SGD has E L_t ≥
  γ_0^t E L_0 with γ_0 = (η²μ_0/B)‖H‖_F² > 1
fig18 | Figure 18 | empirical | The alignment factors stay away from zero during training and as
  networks grow
fig19 | Figure 19 | empirical | SGD leaves a sharp minimum that GD found at the same learning rate
  exponentially fast
cifar | CIFAR-10 experiments | empirical | The sharpness of SGD's solutions hardly depends on the
  size of the model and is close to the bound, the closer the smaller the batch
"""
ROWS = re.sub(r"\n +", " ", TABLE).splitlines()
LISTED = not_yet("wu2025", *(row.split(" | ") for row in ROWS if row[0] != "#"))  # type: ignore[arg-type]
