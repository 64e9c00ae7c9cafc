"""Claims of Wen, Li & Ma 2023, one file for each section."""
