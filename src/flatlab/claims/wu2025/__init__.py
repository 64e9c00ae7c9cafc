"""Claims of Lei Wu's lecture on implicit bias and regularisation, 2025, one file for each part."""
