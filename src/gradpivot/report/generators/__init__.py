"""Tables, figures and page of unlearned generators, with samples and a γ slider."""
