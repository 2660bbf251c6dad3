"""Built-in analyzers."""
