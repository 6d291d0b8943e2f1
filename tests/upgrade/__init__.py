"""Executions that older code began, finished by this one."""
