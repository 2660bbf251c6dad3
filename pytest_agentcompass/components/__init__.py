"""What an extension subclasses, and the registry that finds it."""
