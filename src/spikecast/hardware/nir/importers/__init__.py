"""Scripts that run in the environments of NIR importers, not in ours."""
