"""Claims of Wen, Li & Ma 2023, one file a section."""
