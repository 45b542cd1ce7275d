"""The spike view: signals on every wire, step by step, as a chip would run it."""
