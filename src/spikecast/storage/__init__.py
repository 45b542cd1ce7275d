"""Networks in files. Nothing that is read is executed."""
