"""Tasks: the objective of every client, and how a model is judged. A task knows no engine."""
