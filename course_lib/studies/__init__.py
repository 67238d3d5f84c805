"""The experiments behind data/: each has a command, seeds and a spread."""
