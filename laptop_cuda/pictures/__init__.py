"""Pictures of launches: still ones as SVG, and ones that a reader moves."""
