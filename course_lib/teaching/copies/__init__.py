"""Code that is alike: for the class page, and for solutions in a handout."""
