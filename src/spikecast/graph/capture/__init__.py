"""A model's forward becomes a Program: exported, functional, tidied, laid out in memory."""
