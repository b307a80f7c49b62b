"""The number formats of models and states."""

import torch

# Local training may compute in less.
PRECISIONS = {"float32": torch.float32, "float64": torch.float64, "tf32": torch.float32, "bf16": torch.float32}
