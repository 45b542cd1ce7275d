"""The ANN side: capture, tidy, plan and run graphs."""
