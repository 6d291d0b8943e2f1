"""Implementations of the ports, one folder per world. They see `ports` and `domain` only."""
