"""What is learnt: every client's objective, and how a model is judged. A task knows no engine."""
