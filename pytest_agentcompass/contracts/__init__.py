"""Data that crosses a boundary. Imports nothing of the package but the leaves."""
