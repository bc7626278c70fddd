"""What a model is asked to do: how to run it on a batch, and which losses forget and retain."""
