"""Regression: how a disease goes on after a year, from ten measurements of each patient, in 20 hospitals."""

import numpy as np
from sklearn.datasets import load_diabetes

import adabest

patients = load_diabetes(scaled=False)
order = np.random.default_rng(0).permutation(len(patients.target))
inputs, targets = patients.data[order], patients.target[order]
# Both are standardised by the training part: the same learning rate then suits any unit.
inputs = (inputs - inputs[:340].mean(0)) / inputs[:340].std(0)
targets = (targets - targets[:340].mean()) / targets[:340].std()
dataset = adabest.from_arrays(inputs[:340], targets[:340], inputs[340:], targets[340:], name="diabetes")

if __name__ == "__main__":
    comparison = adabest.compare(
        algorithms=["fedavg", "adabest"],
        dataset=dataset,
        task="regression",
        model="mlp,hidden=16",
        clients=20,
        validation_clients=3,
        participation=0.5,
        batch_size=10,
        learning_rate=0.01,
        rounds=40,
        out="runs/regression",
        overwrite=True,
    )
    print(comparison.table.markdown())
