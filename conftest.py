"""Shared by all tests of the project."""

pytest_plugins = ["pytester"]
