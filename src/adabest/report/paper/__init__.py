"""The paper's tables and figures, made of results, beside what the paper reports."""

from adabest.report.paper.rendering import RENDERINGS, Rendered, render

__all__ = ["RENDERINGS", "Rendered", "render"]
