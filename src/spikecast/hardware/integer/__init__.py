"""A network in whole numbers: add, subtract and shift."""
