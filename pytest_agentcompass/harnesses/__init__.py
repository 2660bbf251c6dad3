"""Built-in harnesses."""
