"""The pytest layer."""
