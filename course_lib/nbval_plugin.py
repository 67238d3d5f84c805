"""The pytest plugin that makes nbval trustworthy; a pytest entry point, so that it works from any folder."""
