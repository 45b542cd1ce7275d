"""Hostile files by the hundred thousand, read and run in forked processes under limits (`make fuzz`)."""
