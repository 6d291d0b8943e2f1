"""Durable Functions of the embedded mode: orchestrations of `azure-functions-durable`, driven
through the library's own protocol, their history in SQLite. What it does not do:
docs/durable-embedded.md.
"""
