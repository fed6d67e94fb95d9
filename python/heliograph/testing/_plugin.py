"""Pytest fixtures, loaded by pytest wherever the package is installed."""
