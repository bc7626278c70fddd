"""The paper's figures and those that explain it."""
