"""Background: tables of the slides and the noise of SGD."""

from __future__ import annotations

from ..contract import not_yet

table_params = not_yet(
    "wu2025.table.params",
    "Figure 1",
    "text",
    "The parameter counts of image classifiers follow from their layers: one hidden layer of "
    "512 units on 28×28×3 inputs and 10 classes has 1,209,866, VGG-11 132,863,336, ResNet-18 "
    "11,689,512",
)
table_geiping = not_yet(
    "wu2025.table.geiping",
    "Figure 4",
    "text",
    "300 epochs of 50,000 images in batches of 128 are 117,000 steps, ⌊50000/128⌋·300",
)
table_keskar = not_yet(
    "wu2025.table.keskar",
    "Tables 2 and 4 of Keskar et al.",
    "text",
    "Small batches have the better test accuracy in all six rows and the smaller sharpness in "
    "all twelve cells",
)
table_sam = not_yet(
    "wu2025.table.sam",
    "Figure 10",
    "text",
    "SAM raises the SuperGLUE average at all four model sizes, though not the score of every task",
)
sgd_noise = not_yet(
    "wu2025.sgd_noise",
    "SGD = GD + noise",
    "identity",
    "A batch drawn with replacement gives g + ξ/√B with E ξ = 0 and E ξξᵀ = (1/n)Σ(g_i − g)(g_i "
    "− g)ᵀ; without replacement the covariance has the factor (n − B)/(n − 1)",
)
