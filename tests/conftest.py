"""What all tests share."""

import torch
from hypothesis import settings

# The same examples every time, so that a red run can be repeated; no deadline, since a busy machine isn't a bug.
settings.register_profile("adabest", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("adabest")

# The models of the tests are tiny: more threads only make them wait for each other.
torch.set_num_threads(1)
