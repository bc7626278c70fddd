"""RA, UA, TA and membership inference from one pass over each set."""
