"""From a model and some batches to a network: capture, plan, calibrate."""
