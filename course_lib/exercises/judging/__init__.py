"""From what a run gave to a verdict, and to the words for it."""
