"""Whole experiments: long runs that can be interrupted, presets side by side, sweeps, the paper's tables."""
