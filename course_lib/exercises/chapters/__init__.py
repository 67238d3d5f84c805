"""The exercises, one module per chapter."""
