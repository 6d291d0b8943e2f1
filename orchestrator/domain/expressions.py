"""Expressions and templates: the public face of everything CEL.

`Expression` is one CEL expression, `Template` is JSON with `${…}` in its strings, `Scope` is what
they see. The parts live in `cel_*.py` and `templates.py`.
"""

from __future__ import annotations

from orchestrator.domain.cel_program import Expression
from orchestrator.domain.cel_scan import ExpressionError
from orchestrator.domain.cel_scope import Scope
from orchestrator.domain.templates import Template, TemplateError

__all__ = ["Expression", "ExpressionError", "Scope", "Template", "TemplateError"]
