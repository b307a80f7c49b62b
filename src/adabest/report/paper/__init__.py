"""The paper's tables and figures, made of results, beside what the paper reports."""

from adabest.report.paper.rendering import RENDERINGS, Rendered, figure_name, render

__all__ = ["RENDERINGS", "Rendered", "figure_name", "render"]
