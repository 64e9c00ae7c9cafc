"""Kaur, Cohen & Lipton 2022: the figures, and the measures that they leave out."""
