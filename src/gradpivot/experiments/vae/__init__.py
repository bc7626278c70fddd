"""The paper's VAE: a digit forgotten in latent space."""
