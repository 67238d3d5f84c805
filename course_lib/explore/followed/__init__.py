"""One weight of a map, followed through a recorded launch: who made it, of what, in which line."""
