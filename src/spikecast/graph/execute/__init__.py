"""A program is run: a schedule that is made once, and runs that follow it."""
