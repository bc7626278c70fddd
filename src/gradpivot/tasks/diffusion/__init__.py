"""Class-conditional diffusion: the denoising task and the samplers."""
