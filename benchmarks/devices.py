"""Whether a GPU comes to the same models as a CPU: every algorithm, three rounds, the relative difference of θ and θ̄.

python -m benchmarks.devices
"""

from typing import Any

import torch

from adabest.algorithms.catalog import ALGORITHMS
from adabest.engine.simulation import Simulation
from adabest.runs.build import build_federation
from adabest.runs.process_settings import ProcessSettings
from adabest.runs.settings.resolution import resolve

SETTINGS: dict[str, Any] = {
    "dataset": "synthetic,samples=1100,shape=3x20x20,classes=10,test=100",
    "clients": 20,
    "validation_clients": 2,
    "unbalance": 0.5,
    "participation": 0.25,
    "epochs": 1,
    "batch_size": 10,
    "augmentation": "flip-crop",
}
MODELS = ("logistic", "cnn", "mlp,hidden=40", "resnet,width=8")
LIMIT_SETTINGS = {"float64": 1e-5, "float32": 2e-3}


def trained(device: str, engine: str, **given: Any) -> Simulation:
    """A federation after three rounds."""
    config, components = resolve({**SETTINGS, **given, "device": device, "engine": engine})
    simulation = build_federation(config, components).simulation
    with ProcessSettings.of(config, components).entered():
        for _ in range(3):
            simulation.step()
    return simulation


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """‖a − b‖ / ‖b‖ on the CPU."""
    return float((one.cpu().double() - other.cpu().double()).norm() / other.cpu().double().norm())


def main() -> None:
    """One line for each model, precision and algorithm."""
    for algorithm in ALGORITHMS.builtin:
        for model in MODELS:
            for precision, bound in LIMIT_SETTINGS.items():
                given = {"model": model, "precision": precision, "algorithm": algorithm}
                on_cpu, on_gpu = trained("cpu", "reference", **given), trained("cuda", "batched", **given)
                pairs = ((getattr(on_gpu.state, n), getattr(on_cpu.state, n)) for n in ("cloud", "aggregate"))
                worst = max(difference(*pair) for pair in (*pairs, (on_gpu.scored_model(), on_cpu.scored_model())))
                verdict = "equal" if worst <= bound else "DIFFERENT"
                print(f"{model}, {precision}, {algorithm}: {verdict}, {worst:.1e}", flush=True)


if __name__ == "__main__":
    main()
