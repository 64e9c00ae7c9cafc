"""The sources of the claims, by the first part of a claim's id."""

SOURCES = {
    "wen2023": "Wen, Li & Ma (2023), Sharpness Minimization Algorithms Do Not Only Minimize "
    "Sharpness To Achieve Better Generalization",
    "kaur2022": "Kaur, Cohen & Lipton (2022), On the Maximum Hessian Eigenvalue and Generalization",
    "wu2025": "Wu (2025), Implicit Bias/Regularization I, a lecture of Topics in Deep Learning "
    "Theory",
    "summary001": "A summary of Wen, Li & Ma (2023) and its next checks",
    "flatlab": "Found here while checking the sources",
}
