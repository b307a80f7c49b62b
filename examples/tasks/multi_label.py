"""Multi-label: what is true of a handwritten digit? Any number of four properties, learnt by 40 clients."""

import numpy as np
from sklearn.datasets import load_digits

import adabest

digits = load_digits()
number = digits.target
properties = np.stack([number % 2 == 0, number >= 5, np.isin(number, [2, 3, 5, 7]), np.isin(number, [0, 6, 8, 9])], 1)
images = (digits.images / 16).astype(np.float32)[:, None]
dataset = adabest.from_arrays(images[:1400], properties[:1400], images[1400:], properties[1400:], name="properties")

if __name__ == "__main__":
    comparison = adabest.compare(
        algorithms=["fedavg", "adabest"],
        dataset=dataset,
        task="multi-label",
        model="mlp,hidden=64",
        clients=40,
        rounds=40,
        out="runs/multi-label",
        overwrite=True,
    )
    print(comparison.table.markdown())
