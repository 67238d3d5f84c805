"""Checking and timing the kernels on a card."""
