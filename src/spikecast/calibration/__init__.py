"""Thresholds from data: statistics of activations, and search in the loop."""
