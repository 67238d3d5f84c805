"""An exam that cannot be looked up: the same problems, on a machine that is drawn for each student."""
