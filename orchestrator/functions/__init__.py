"""Thin triggers, one blueprint per concern: they translate, nothing else.

An HTTP trigger reads and checks the request, calls one use case of `orchestrator.engine` and turns
the result or the error into an answer. No rule of the product lives here.
"""
