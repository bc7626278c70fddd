"""The paper's toy: five Gaussians."""
