"""How an unlearned model is judged: accuracies and membership from one forward pass per set."""
