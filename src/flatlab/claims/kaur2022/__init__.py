"""Claims of Kaur, Cohen & Lipton 2022: flatness, stability, SAM, and the figures."""
