"""Next-token prediction: the next letter of a text, from Python's own help pages, each of which is a client."""

from pydoc_data.topics import topics

import numpy as np
from torch import Tensor, nn

import adabest

LENGTH, SAMPLES, PAGES, PADDING = 32, 8, 60, -100
LETTERS = " abcdefghijklmnopqrstuvwxyz"


def read(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Pieces of a text as numbers of letters, and the letter that follows each; the last piece may lack some."""
    tokens = [LETTERS.find(letter) for letter in " ".join(text.lower().split()) if letter in LETTERS]
    tokens = tokens[: LENGTH * SAMPLES + 1]
    count = -(-(len(tokens) - 1) // LENGTH)
    inputs, following = np.zeros(count * LENGTH, np.int64), np.full(count * LENGTH, PADDING)
    inputs[: len(tokens) - 1], following[: len(tokens) - 1] = tokens[:-1], tokens[1:]
    return inputs.reshape(count, LENGTH), following.reshape(count, LENGTH)


class Writer(nn.Module):
    """Reads letter by letter, and scores what may follow each."""

    def __init__(self, input_shape: tuple[int, ...], letters: int) -> None:
        super().__init__()
        self.table = nn.Embedding(letters, 24)
        self.reader = nn.GRU(24, 48, batch_first=True)
        self.out = nn.Linear(48, letters)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores ``[batch, length, letters]``."""
        scores: Tensor = self.out(self.reader(self.table(tokens))[0])
        return scores


pages = [read(text) for text in sorted(topics.values(), key=len)[-PAGES:]]
train, test = pages[: PAGES - 10], pages[PAGES - 10 :]
dataset = adabest.from_arrays(
    np.concatenate([inputs for inputs, _ in train]),
    np.concatenate([following for _, following in train]),
    np.concatenate([inputs for inputs, _ in test]),
    np.concatenate([following for _, following in test]),
    clients=np.repeat(np.arange(len(train)), [len(inputs) for inputs, _ in train]),
    name="help pages",
)

if __name__ == "__main__":
    comparison = adabest.compare(
        algorithms=["fedavg", "adabest"],
        dataset=dataset,
        task="next-token",
        model=Writer,
        participation=0.2,
        batch_size=8,
        learning_rate=1.0,
        clip=1.0,
        rounds=30,
        out="runs/next-token",
        overwrite=True,
    )
    print(comparison.table.markdown())
