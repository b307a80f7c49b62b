"""The page: all that runs have to tell, in one HTML file that needs nothing else."""

from adabest.report.page.page import page_text
from adabest.report.page.shown import Shown, entries_of

__all__ = ["Shown", "entries_of", "page_text"]
