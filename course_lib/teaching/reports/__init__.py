"""Marks as pages and files: per student, per class, for gradebooks."""
