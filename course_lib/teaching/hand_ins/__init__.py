"""What students hand in: files found and read, whose they are, and how late."""
