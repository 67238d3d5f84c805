"""The machine's compilers: which there are, where builds are kept, what a built file holds."""
