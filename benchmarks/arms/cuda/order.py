"""The order of a model's layers that careful code would choose."""

from benchmarks.tasks import Layer, Pool, Relu, Task


def pooled_first(task: Task) -> list[Layer]:
    """The layers, with pooling before ReLU: the same result, from a quarter of the numbers."""
    layers = list(task.layers)
    for place in range(1, len(layers)):
        if isinstance(layers[place], Pool) and isinstance(layers[place - 1], Relu):
            layers[place - 1 : place + 1] = layers[place], layers[place - 1]
    return layers
