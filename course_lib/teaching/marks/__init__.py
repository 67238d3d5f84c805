"""From hand-ins to a table of marks."""
