"""Claims of Lei Wu's lecture Implicit Bias/Regularization I, 2025, one file for each part."""
