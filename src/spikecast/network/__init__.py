"""What convert returns: the ANN's own graph with neurons in it, run over time."""
