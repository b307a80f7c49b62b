"""One run on many processes: those that torchrun starts, and what they send each other."""
