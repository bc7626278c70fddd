"""Plain ``nn.Module``s: small reference networks for the embedded problems."""
