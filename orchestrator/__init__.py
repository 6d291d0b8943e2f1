"""Weft: durable DAG workflows on Azure Functions, and on one machine.

Imports run downwards only: domain <- ports <- engine <- functions; adapters see ports and domain;
`bootstrap` and `local` see everything. The rule is checked by import-linter (see pyproject.toml).
"""
