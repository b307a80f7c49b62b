"""Flower's clients: a plain loop. They are imported by processes of Ray, so this is a module of its own.

Data and model stay between rounds, as far as the process that a client runs in lasts.
"""

import functools

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.arms import torch_model
from benchmarks.tasks import TASKS, Task


@functools.cache
def everything(name: str, clients: int) -> tuple[Task, Tensor, Tensor, nn.Module]:
    """What a client's process needs, made once."""
    torch.set_num_threads(1)
    task = TASKS[name].with_cohort(clients)
    return task, torch.from_numpy(task.inputs()), torch.from_numpy(task.labels()), torch_model.build(task)


def client_app() -> ClientApp:
    """The clients' side: a plain loop."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        sent = message.content["config"]
        task, all_x, all_y, module = everything(sent["task"], sent["clients"])
        client = int(context.node_config["partition-id"]) % task.population
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = all_x[client], all_y[client]
        optimizer = torch.optim.SGD(module.parameters(), lr=task.learning_rate, foreach=True)
        for _ in range(task.epochs):
            for batch in torch.randperm(task.samples).split(task.batch_size):
                optimizer.zero_grad(set_to_none=True)
                functional.cross_entropy(module(x[batch]), y[batch]).backward()
                optimizer.step()
        reply = {
            "arrays": ArrayRecord(module.state_dict()),
            "metrics": MetricRecord({"num-examples": task.samples}),
        }
        return Message(content=RecordDict(reply), reply_to=message)

    return app
