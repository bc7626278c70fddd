"""Many runs: each described, recorded once, and gathered into frontiers."""
