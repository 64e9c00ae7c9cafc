"""Stability: what gradient descent and SGD can converge to, and how fast they leave."""

from __future__ import annotations

from ..contract import not_yet

gf_stability = not_yet(
    "wu2025.gf_stability",
    "Stability of gradient flow",
    "identity",
    "Of the critical points gradient flow is stable at minima and leaves saddles: perturbations "
    "evolve by e^{−Ht}",
)
gd_stability = not_yet(
    "wu2025.gd_stability",
    "The linear stability analysis",
    "identity",
    "‖I − ηH‖ ≤ 1 for H ⪰ 0 if and only if λ_1 ≤ 2/η; otherwise θ_t − θ* grows like |1 − ηλ_1|^t",
)
table_eos = not_yet(
    "wu2025.table_eos",
    "Table 1",
    "text",
    "The sharpness of GD's solutions is at most 2/η in all nine cells, and close to it in all "
    "but FashionMNIST at η = 0.01",
)
two_functions = not_yet(
    "wu2025.two_functions",
    "What affects the stability of SGD",
    "identity",
    "With f_i = min(x², c_i(x − 1)²), c = (0.1, 1.9) and η = 0.7, GD has the factor −0.4 at "
    "both minima while SGD leaves x = 1, where its factors are 0.86 and −1.66",
)
fixed_points = not_yet(
    "wu2025.fixed_points",
    "Linear stability of SGD",
    "identity",
    "For smooth ℓ_i ≥ 0, L = 0 implies ∇ℓ_i = 0 for all i: global minima are fixed points of SGD",
)
sgd_eq2_to_eq5 = not_yet(
    "wu2025.sgd_eq2_to_eq5",
    "eqs. (2) to (5)",
    "identity",
    "On (1/2n)Σa_i x² with batch size 1, E x' = (1 − ηa) E x and E x'² = ((1 − ηa)² + η²s²) E "
    "x², a and s being the mean and deviation of a_i",
)
sgd_stability_eq6 = not_yet(
    "wu2025.sgd_stability_eq6",
    "eq. (6)",
    "identity",
    "With batches of B drawn without replacement, x = 0 is stable in the mean square if and "
    "only if (1 − ηa)² + η²(n − B)/(B(n − 1)) s² ≤ 1",
)
sgd_highdim = not_yet(
    "wu2025.sgd_highdim",
    "High-dimensional cases",
    "inequality",
    "λ_max((I − ηH)² + η²(n − B)/(B(n − 1)) Σ) ≤ 1 is sufficient for stability in the mean "
    "square; exact is a spectral radius of E[(I − ηH_B)⊗(I − ηH_B)] of at most 1",
)
sgd_necessary = not_yet(
    "wu2025.sgd_necessary",
    "High-dimensional cases",
    "inequality",
    "a ≤ 2/η is necessary for stability; s ≤ (1/η)√(B(n − 1)/(n − B)) only for the sufficient "
    "condition, not for stability",
)
selection_diagram = not_yet(
    "wu2025.selection_diagram",
    "The selection diagram",
    "identity",
    "In one dimension the stable pairs of sharpness a and non-uniformity s fill the region (1 − "
    "ηa)² + η²(n − B)/(B(n − 1)) s² ≤ 1",
)
fig16 = not_yet(
    "wu2025.fig16",
    "Figure 16",
    "empirical",
    "The minima that SGD selects lie in the stable region of sharpness and non-uniformity",
)
fig17 = not_yet(
    "wu2025.fig17",
    "Figure 17",
    "empirical",
    "Over many trained networks the non-uniformity is nearly proportional to the sharpness",
)
noise_taylor = not_yet(
    "wu2025.noise_taylor",
    "Towards a necessary condition",
    "identity",
    "On a quadratic E L(θ_{t+1}) = L(θ_t − η∇L) + (η²/2B) Tr(HΣ)",
)
decoupling = not_yet(
    "wu2025.decoupling",
    "The alignment property",
    "rate",
    "Σ = (1/n)Σe_i²∇f_i∇f_iᵀ − ∇L∇Lᵀ is close to 2LG where e_i² and ∇f_i are independent and ∇L "
    "is small",
)
alignment_defs = not_yet(
    "wu2025.alignment_defs",
    "eqs. (7) to (9)",
    "definition",
    "α = Tr(ΣG)/(‖Σ‖_F‖G‖_F) ≤ 1, β = ‖Σ‖_F/(2L‖G‖_F) and μ = αβ = Tr(ΣG)/(2L‖G‖_F²)",
)
mu_ge_mu0 = not_yet(
    "wu2025.mu_ge_mu0",
    "The key observation",
    "empirical",
    "In training μ stays above a positive constant, though not for every model: equal gradients "
    "of all examples give μ = 0",
)
trace_sigma_g = not_yet(
    "wu2025.tr_sigma_G",
    "Why is the alignment satisfied?",
    "identity",
    "Tr(ΣG) = (1/n)Σe_i²‖∇f_i‖_G² − ∇LᵀG∇L, and (1/n)Σ‖∇f_i‖_G² = ‖G‖_F²",
)
gamma_bound = not_yet(
    "wu2025.gamma_bound",
    "Why is the alignment satisfied?",
    "inequality",
    "Without the term ∇L∇Lᵀ in Σ, μ ≥ γ = min_i ‖∇f_i‖_G²/((1/n)Σ‖∇f_i‖_G²)",
)
residual_uniformity = not_yet(
    "wu2025.residual_uniformity",
    "Why is the alignment satisfied?",
    "identity",
    "Equal ‖∇f_i‖_G give μ = 1 for any residuals, without the term ∇L∇Lᵀ in Σ; equal residuals "
    "are not needed",
)
prop1_linear_nets = not_yet(
    "wu2025.prop1_linear_nets",
    "Proposition 1",
    "identity",
    "For deep linear networks, x ~ N(0, S), n = ∞ and a linear target: Σ = 2LG + ∇L∇Lᵀ, so μ ≥ 1",
)
prop2_random_features = not_yet(
    "wu2025.prop2_random_features",
    "Proposition 2",
    "rate",
    "For random ReLU features on the sphere, a target they can represent and n ≳ d⁵ log(1/δ): μ "
    "≳ 1/d for all θ",
)
thm3_stability = not_yet(
    "wu2025.thm3_stability",
    "Theorem 3 (stability)",
    "inequality",
    "At a linearly stable minimum where the noise has μ ≥ μ_0: ‖H‖_F ≤ (1/η)√(B/μ_0)",
)
thm3_step = not_yet(
    "wu2025.thm3.step",
    "Proof of Theorem 3",
    "inequality",
    "For linearised SGD E L_{t+1} ≥ (η²/2B) E Tr(HΣ) = (η²/B)‖H‖_F² E μL_t",
)
gd_fro_bound = not_yet(
    "wu2025.gd_fro_bound",
    "Comparison with GD",
    "inequality",
    "λ_1 ≤ 2/η gives ‖H‖_F ≤ √rank(H) λ_1 ≤ 2√n/η at interpolation",
)
geometry_vs_isotropic = not_yet(
    "wu2025.geometry_vs_isotropic",
    "The importance of noise structure",
    "inequality",
    "Stability under noise of covariance 2LG/B needs ‖H‖_F ≤ √B/η; under isotropic noise of the "
    "same variance Tr H ≤ √(mB)/η with m parameters",
)
thm4_escape = not_yet(
    "wu2025.thm4_escape",
    "Theorem 4 (escape)",
    "inequality",
    "If ‖H‖_F > (1/η)√(B/μ_0), linearised SGD has E L_t ≥ γ_0^t E L_0 with γ_0 = "
    "(η²μ_0/B)‖H‖_F² > 1",
)
fig18 = not_yet(
    "wu2025.fig18",
    "Figure 18",
    "empirical",
    "The alignment factors stay away from zero during training and as networks grow",
)
fig19 = not_yet(
    "wu2025.fig19",
    "Figure 19",
    "empirical",
    "SGD leaves a sharp minimum that GD found at the same learning rate exponentially fast",
)
cifar = not_yet(
    "wu2025.cifar",
    "CIFAR-10 experiments",
    "empirical",
    "The sharpness of SGD's solutions hardly depends on the size of the model and is close to "
    "the bound, the closer the smaller the batch",
)
