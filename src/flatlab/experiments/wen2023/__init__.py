"""Wen, Li & Ma 2023: sharpness minimisation does not only minimise sharpness."""
