"""The paper's VAE experiment: forget a digit in a two-dimensional latent space."""
