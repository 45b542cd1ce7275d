"""How a base threshold follows from statistics of activations."""
