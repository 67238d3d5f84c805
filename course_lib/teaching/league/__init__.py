"""A league without a clock: ten kernels, ranked by exact counts that are the same on every laptop."""
