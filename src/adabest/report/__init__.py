"""Reports: tables and figures of runs, and the page that shows them."""
