"""LEAF's JSON, with its users as clients."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adabest.data.loading import load_dataset
from adabest.errors import InputError

TRAIN: dict[str, Any] = {"f07": ([[0.5, 1.0], [0.25, 0.0]], [3, 0]), "f01": ([[0.125, 0.75]], [1])}
MORE: dict[str, Any] = {"f02": ([[1.0, 1.0]], [2]), "f00": ([], [])}
TEST: dict[str, Any] = {"f01": ([[0.0, 0.5]], [2])}


def content(users: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
        **changes,
    }


def write(folder: Path, train: Any = None, test: Any = None) -> str:
    for split, files in (("train", train or [content(TRAIN)]), ("test", test or [content(TEST)])):
        (folder / split).mkdir(parents=True)
        for number, file in enumerate(files):
            text = file if isinstance(file, str) else json.dumps(file)
            (folder / split / f"all_data_{number}.json").write_text(text)
    return f"leaf,path={folder}"


def test_users_are_clients(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path / "femnist", [content(TRAIN), content(MORE)]))
    assert data.name == "femnist"
    np.testing.assert_array_equal(data.x_train[:].numpy(), [[0.5, 1.0], [0.25, 0.0], [0.125, 0.75], [1.0, 1.0]])
    assert data.x_train.dtype == torch.float32
    assert data.y_train.tolist() == [3, 0, 1, 2]
    assert data.y_test.tolist() == [2]
    assert data.classes == 4
    assert data.clients is not None
    assert data.clients.tolist() == [2, 2, 0, 1], "who has nothing is no client"


def test_the_folder_above_is_taken(tmp_path: Path) -> None:
    below = load_dataset(write(tmp_path / "femnist" / "data"))
    above = load_dataset(f"leaf,path={tmp_path / 'femnist'}")
    assert above.fingerprint() == below.fingerprint()
    assert above.name == "femnist"


def test_inputs_are_given_a_shape(tmp_path: Path) -> None:
    data = load_dataset(write(tmp_path / "set") + ",shape=1x1x2")
    assert data.input_shape == (1, 1, 2)
    assert data.x_train[0].tolist() == [[[0.5, 1.0]]]


def test_counts_may_be_missing(tmp_path: Path) -> None:
    bare = content(TRAIN)
    del bare["num_samples"]
    assert len(load_dataset(write(tmp_path / "set", [bare])).y_train) == 3


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("{", "all_data_0.json can't be read as JSON"),
        ("[]", "isn't a file of LEAF's: it should hold a list users and an object user_data"),
        ({"users": ["a"]}, "isn't a file of LEAF's"),
        (content(TRAIN, user_data={}), "all_data_0.json, user f07: user_data should hold x and y"),
        (content(TRAIN, num_samples=[2]), "num_samples should have one number for each of 2 users"),
        (content(TRAIN, num_samples=[3, 1]), "user f07: num_samples says 3, but there are 2"),
        (content({"a": ([[1.0]], [1, 2])}), "user a: x has 1 inputs and y 2 labels"),
        (content({"a": ([[1.0]], [1.5])}), "labels, which should be whole numbers"),
        (content({"a": (["some text"], [1])}), "user a: x and y should be numbers"),
        (content({"a": ([[1.0], [1.0, 2.0]], [1, 1])}), "user a: x and y should be numbers, and inputs of one shape"),
        (content({"a": ([[1.0]], [0]), "b": ([[1.0, 2.0]], [0])}), "user b: inputs of shape (2,), but those before"),
        (content({"a": ([[1.0]], [-1])}), "y_train has the label -1"),
        (content({"a": ([], [])}), "has no samples"),
    ],
)
def test_wrong_contents_are_named(file: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refusal:
        load_dataset(write(tmp_path / "set", [file]))
    assert words in str(refusal.value)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="data set 'leaf' needs a value for path, as in leaf,path="):
        load_dataset("leaf")
    with pytest.raises(InputError, match=r"train has no \.json file; LEAF's data are a folder train"):
        load_dataset(f"leaf,path={tmp_path}")
    with pytest.raises(InputError, match=r"inputs of 2 numbers can't have the shape \(1, 28, 28\)"):
        load_dataset(write(tmp_path / "set") + ",shape=1x28x28")


@pytest.mark.parametrize("data", ['{"x": 5, "y": 3}', '{"x": [[1.0]], "y": 3}', '{"x": 2.5, "y": [1]}'])
def test_inputs_or_labels_that_are_no_lists_are_refused(data: str, tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / "data" / split).mkdir(parents=True)
        content = f'{{"users": ["u"], "num_samples": [1], "user_data": {{"u": {data}}}}}'
        (tmp_path / "data" / split / "all.json").write_text(content)
    with pytest.raises(InputError, match="x should be a list of inputs and y one of labels"):
        load_dataset(f"leaf,path={tmp_path}")
