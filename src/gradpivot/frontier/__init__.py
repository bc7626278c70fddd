"""Sets of solutions: dominance, hypervolume, distance, selection. Knows data only; no torch."""
