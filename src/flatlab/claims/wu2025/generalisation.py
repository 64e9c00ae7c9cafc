"""Sharpness and generalisation: perturbations, PAC-Bayes, norms, memorising networks and SAM."""

from __future__ import annotations

from ..contract import not_yet

perturbation_lmax = not_yet(
    "wu2025.perturbation.lmax",
    "Sharpness, first display",
    "identity",
    "At a minimum λ_max(∇²L) = max_{‖ε‖≤ρ} 2(L(θ + ε) − L(θ))/ρ² + O(ρ)",
)
perturbation_trace = not_yet(
    "wu2025.perturbation.trace",
    "Sharpness, second display",
    "identity",
    "At a minimum Tr ∇²L = E 2(L(θ + ε) − L(θ))/ρ² + O(ρ²) for ε ~ N(0, ρ²I)",
)
perturbation_frobenius = not_yet(
    "wu2025.perturbation.frobenius",
    "Sharpness, third display",
    "identity",
    "At a minimum ‖∇²L‖_F² = E 2(L(θ + ε) − L(θ))/ρ² + O(ρ²) for ε ~ N(0, ρ²∇²L)",
)
rescaling = not_yet(
    "wu2025.rescaling",
    "Sharp minima can generalise well",
    "identity",
    "a σ(wᵀx) = (a/λ) σ(λwᵀx) for ReLU and every λ > 0",
)
toy_hessian = not_yet(
    "wu2025.toy_hessian",
    "Sharp minima can generalise well",
    "identity",
    "L = ½(aw − 1)² has ∇²L = [[w², 1], [1, a²]] where aw = 1, with eigenvalues 0 and a² + w², "
    "least at |a| = |w| = 1 and without bound",
)
thm1_mcallester = not_yet(
    "wu2025.thm1_mcallester",
    "Theorem 1 (McAllester)",
    "probabilistic",
    "With probability 1 − δ, for all Q: L(Q) ≤ L̂(Q) + √((KL(Q‖P) + log(2√n/δ))/2n); with "
    "log(1/δ) alone it is false",
)
thm2_donsker_varadhan = not_yet(
    "wu2025.thm2_donsker_varadhan",
    "Theorem 2 (Donsker and Varadhan)",
    "identity",
    "log E_π e^V = max_p (E_p V − KL(p‖π)), reached at the Gibbs distribution dπ_V ∝ e^V dπ",
)
generalised_jensen = not_yet(
    "wu2025.generalised_jensen",
    "After Theorem 2",
    "inequality",
    "e^{E_p V} ≤ E_π[e^V] e^{KL(p‖π)}",
)
hoeffding_mgf = not_yet(
    "wu2025.hoeffding_mgf",
    "Proof of McAllester's theorem",
    "inequality",
    "For a loss in [0, 1] and n independent examples, Δ = L − L̂ has E e^{λΔ} ≤ e^{λ²/8n}",
)
chernoff_slide = not_yet(
    "wu2025.chernoff_slide",
    "Chernoff's bound",
    "inequality",
    "P(Δ ≥ t) ≤ E e^{λΔ}/e^{λt} for λ > 0",
)
pacbayes_step = not_yet(
    "wu2025.pacbayes_step",
    "Proof of McAllester's theorem",
    "probabilistic",
    "For a λ fixed beforehand, with probability 1 − δ for all Q: E_Q Δ ≤ λ/8n + (KL(Q‖P) + "
    "log(1/δ))/λ",
)
gauss_kl = not_yet(
    "wu2025.gauss_kl",
    "Divergence of Gaussians",
    "identity",
    "KL(N(θ, σ²I)‖N(0, σ_P²I)) with σ_P² = σ² + ‖θ‖²/k, its minimiser, is (k/2) log(1 + "
    "‖θ‖²/(kσ²))",
)
thm1_flatness_bound = not_yet(
    "wu2025.thm1_flatness_bound",
    "Theorem 1 (flatness)",
    "inequality",
    "L − L̂ is at most the largest rise of L̂ within ρ = σ(√k + √log n) plus √((k log(1 + "
    "(‖θ‖²/ρ²)(1 + √(log n/k))²) + 4 log(n/δ) + Õ(1))/(n − 1))",
)
pacbayes_criticism = not_yet(
    "wu2025.pacbayes_criticism",
    "Let us criticise",
    "identity",
    "The complexity term k log(1 + ‖θ‖²/ρ²)/n is at least k/n where ‖θ‖² ≥ (e − 1)ρ², so "
    "vacuous for k ≥ n, and does not depend on the Hessian",
)
g_vs_h = not_yet(
    "wu2025.g_vs_h",
    "An important observation",
    "identity",
    "For L̂ = (1/2n)Σe_i²: H = G + (1/n)Σe_i∇²f_i with G = (1/n)Σ∇f_i∇f_iᵀ, the Gauss–Newton "
    "matrix; H = G at interpolation and Tr G = (1/n)Σ‖∇f_i‖²",
)
trace_g_closed_form = not_yet(
    "wu2025.trG_closed_form",
    "Two-layer networks without bias",
    "identity",
    "For x uniform on the sphere of radius √d: Tr G = ½Σ_j (‖w_j‖² + d a_j²)",
)
thm2_norm_equivalence = not_yet(
    "wu2025.thm2_norm_equivalence",
    "Theorem 2 (norms)",
    "rate",
    "With N_q = Σ_j (‖w_j‖² + q a_j²): Tr G ~ N_d and ‖G‖_F ~ N_{√d} for n ≳ N(d, δ), and ‖G‖_2 "
    "~ N_1 for n ≳ d N(d, δ)",
)
sample_size = not_yet(
    "wu2025.N_d_delta",
    "Theorem 2 (norms)",
    "rate",
    "N(d, δ) = inf{n: d log(n/δ) ≤ n} grows like d log(d/δ)",
)
path_norm = not_yet(
    "wu2025.path_norm",
    "Flatness implies generalisation",
    "inequality",
    "Σ_j (‖w_j‖² + q a_j²) ≥ 2√q Σ_j |a_j|‖w_j‖, with equality if and only if ‖w_j‖ = √q |a_j|",
)
thm3_flatness_generalises = not_yet(
    "wu2025.thm3_flatness_generalises",
    "Theorem 3 (flatness)",
    "rate",
    "An interpolating θ has E|f − f*|² ≲ (Tr² G/n) polylog(n, 1/δ) if n ≥ N(d, δ) and |f*| ≤ 1",
)
thm4_flat_no_generalise = not_yet(
    "wu2025.thm4_flat_no_generalise",
    "Theorem 4 (flat minima)",
    "construction",
    "With bias and m ≥ n there is a flattest interpolating network on xor that is zero off the "
    "training set",
)
def1_memorising = not_yet(
    "wu2025.def1_memorising",
    "Definition 1",
    "definition",
    "A memorising solution interpolates, and every training point activates exactly one neuron, "
    "different points different ones",
)
memoriser = not_yet(
    "wu2025.memoriser",
    "Proof of Theorem 4, step 1",
    "construction",
    "w_j = x_j/‖x_j‖, b_j = −√d/2, a_j = 2y_j/√d memorises only nearly orthogonal inputs, and "
    "has ‖∇f(x_i)‖² = 4(d+1)/d + d/4, above the floor 2√(d+1)",
)
memoriser_incoherence = not_yet(
    "wu2025.memoriser.incoherence",
    "Proof of Theorem 4, step 1",
    "probabilistic",
    "With probability 1 − δ, n random points of the cube have |x̂_i·x̂_j| = O(√(log(n/δ)/d)) "
    "for all i ≠ j",
)
step2_lower_bound = not_yet(
    "wu2025.step2_lower_bound",
    "Proof of Theorem 4, step 2",
    "inequality",
    "‖∇f(x_i)‖² ≥ 2‖x'_i‖|f(x_i)| with x' = (x, 1), so that Tr G ≥ 2√(d+1) on interpolating "
    "networks of the cube",
)
sam_objective = not_yet(
    "wu2025.sam_objective",
    "Sharpness-aware minimisation",
    "definition",
    "SAM's loss is L(θ) + (max_{‖ε‖≤ρ} L(θ + ε) − L(θ)), the largest loss in a ball",
)
sam_epsilon = not_yet(
    "wu2025.sam_epsilon",
    "The simplification",
    "identity",
    "The maximiser of the linearised loss in the ball is ρ∇L/‖∇L‖, where ∇L ≠ 0",
)
sam_step = not_yet(
    "wu2025.sam_step",
    "eq. (1)",
    "rate",
    "A step θ − η∇L(θ + ρ∇L/‖∇L‖) descends L + ρ‖∇L‖ up to O(ρ²)",
)
