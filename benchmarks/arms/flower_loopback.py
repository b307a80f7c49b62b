"""The task of the federation benchmark, and Flower's own FedAvg on it: a plain loop, as its quickstarts have it."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn
from torch.nn import functional

INPUTS, CLASSES, HIDDEN = 64, 10, 512
SAMPLES, BATCH_SIZE, LEARNING_RATE, WEIGHT_DECAY, CLIP = 480, 20, 0.1, 1e-4, 10.0


def samples(client: int) -> tuple[np.ndarray, np.ndarray]:
    """The samples of a client, made up."""
    rng = np.random.default_rng(client)
    return rng.normal(size=(SAMPLES, INPUTS)).astype(np.float32), rng.integers(0, CLASSES, SAMPLES)


def model() -> nn.Module:
    """The model, with which most of a message is numbers."""
    sizes = (INPUTS, HIDDEN, HIDDEN, CLASSES)
    layers: list[nn.Module] = []
    for wide, narrow in itertools.pairwise(sizes):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def server_app() -> ServerApp:
    """Flower's FedAvg, with all nodes in every round and without tests."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        settings: Mapping[str, Any] = context.run_config
        nodes = int(settings["nodes"])
        strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
        torch.manual_seed(0)
        strategy.start(grid=grid, initial_arrays=ArrayRecord(model().state_dict()), num_rounds=int(settings["rounds"]))

    return app


def client_app() -> ClientApp:
    """A plain loop."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        x, y = map(torch.from_numpy, samples(int(context.node_config["partition-id"])))
        module = model()
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        losses = []
        for batch in torch.randperm(SAMPLES).split(BATCH_SIZE):
            optimizer.zero_grad()
            loss = functional.cross_entropy(module(x[batch]), y[batch])
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), CLIP)
            optimizer.step()
            losses.append(loss.item())
        reply = {
            "arrays": ArrayRecord(module.state_dict()),
            "metrics": MetricRecord({"num-examples": SAMPLES, "train_loss": sum(losses) / len(losses)}),
        }
        return Message(content=RecordDict(reply), reply_to=message)

    return app
