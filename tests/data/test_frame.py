"""Frames and sparse matrices as data sets."""

import subprocess
import sys
from typing import Any

import numpy as np
import pandas
import pytest
import scipy.sparse
import torch

import adabest
from adabest.errors import InputError

COLUMNS: dict[str, Any] = {
    "age": [1, 2, 3, 4],
    "height": [0.5, 1.5, -2.5, 10.0],
    "who": [*"babc"],
    "kind": ["cat", "dog", "ant", "ant"],
    "part": ["train", "train", "test", "train"],
}


class Column:
    """A column as polars has them: less than pandas offers."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def to_numpy(self) -> np.ndarray:
        return np.array(self._values)


class OtherFrame:
    """A frame as polars has them."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns
        self.columns = list(columns)

    def __len__(self) -> int:
        return len(self._columns[self.columns[0]])

    def __getitem__(self, column: str) -> Column:
        return Column(self._columns[column])


@pytest.mark.parametrize("kind", [pandas.DataFrame, OtherFrame])
def test_columns_become_inputs_labels_clients_and_splits(kind: Any) -> None:
    data = adabest.from_frame(kind(COLUMNS), label="kind", client="who", split="part", name="pets")
    assert data.name == "pets"
    assert data.names == ("ant", "cat", "dog")
    assert data.x_train.dtype == torch.float32
    assert data.x_train[:].tolist() == [[1, 0.5], [2, 1.5], [4, 10]]
    assert data.y_train.tolist() == [1, 2, 0]
    assert data.x_test.tolist() == [[3, -2.5]]
    assert data.clients is not None
    assert data.clients.tolist() == [1, 0, 2]


def test_polars_frames() -> None:
    polars = pytest.importorskip("polars")
    data = adabest.from_frame(polars.DataFrame(COLUMNS), label="kind", client="who", split="part")
    assert data.x_train[:].tolist() == [[1, 0.5], [2, 1.5], [4, 10]]


def test_a_second_frame_to_test_with() -> None:
    later = pandas.DataFrame({"b": [6.0], "label": [0], "a": [5]}, index=[77])
    data = adabest.from_frame(pandas.DataFrame({"a": [1, 2], "b": [3, 4], "label": [0, 1]}), test=later)
    assert data.x_test.tolist() == [[5, 6]]
    assert data.names == ()


def test_types_of_pandas() -> None:
    frame = pandas.DataFrame({0: [1, 2, 3], 1: [True, False, True], "label": pandas.Categorical(["b", "a", "a"])})
    frame[2] = pandas.array([5, 6, 7], dtype="Int64")
    data = adabest.from_frame(frame.assign(s=["train", "test", "train"]), split="s")
    assert data.x_train[:].tolist() == [[1, 1, 5], [3, 1, 7]]
    assert data.names == ("a", "b")


@pytest.mark.parametrize(
    ("changes", "options", "said"),
    [
        ({"age": [1, None, 3, 4]}, {}, "pets, row 1 from 0, column 'age' is empty"),
        ({"age": pandas.array([1, 2, None, 4], dtype="Int64")}, {}, "pets, row 2 from 0, column 'age' is empty"),
        ({"kind": ["cat", None, "ant", "cat"]}, {}, "pets, row 1 from 0, column 'kind' is empty"),
        ({"age": [1, 2, "x", 4]}, {}, "pets, row 2 from 0, column 'age': 'x' isn't a number"),
        ({"age": [1, 2, object, 4]}, {}, "column 'age': <class 'object'> isn't a number"),
        ({"age": [1, 2, 10**400, 4]}, {}, "column 'age' holds a whole number that is too large"),
        ({"age": [1, 2, np.inf, 4]}, {}, "pets, row 2 from 0, column 'age': inf isn't a finite number"),
        ({}, {"label": "kin"}, "pets has no column 'kin' for label=...; did you mean 'kind'?"),
        ({}, {"features": "age"}, r"pets: features should be a list of columns, as in ['age']"),
        ({}, {"labels": "maps"}, "pets: labels = 'maps' should be 'count', 'map' or 'numbers'"),
        ({}, {"test_share": 0.5}, "pets needs one way to tell its test rows"),
        ({"kind": [3, 4, 6, 3]}, {}, "labels=map maps them"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], options: dict[str, Any], said: str) -> None:
    frame = pandas.DataFrame({**COLUMNS, **changes})
    with pytest.raises(InputError) as caught:
        adabest.from_frame(frame, **{"label": "kind", "client": "who", "split": "part", "name": "pets", **options})
    assert said in str(caught.value)


def test_columns_called_by_numbers_are_named_by_them() -> None:
    frame = pandas.DataFrame([[1.0, 2.0, 0, "a"], [3.0, 4.0, 1, "b"], [5.0, 6.0, 0, "a"], [7.0, 8.0, 1, "b"]])
    data = adabest.from_frame(frame, label=2, client=3, test_share=0.5)
    assert (data.input_shape, data.classes, data.clients is not None) == ((2,), 2, True)
    named = adabest.from_frame(frame, label=[2], features=[0, 1], drop=[3], test_share=0.5)
    assert named.input_shape == (2,)
    with pytest.raises(InputError, match=r"frame: features should be a list of columns, as in \['0', '1'\]"):
        adabest.from_frame(frame, label=2, features="0+1", test_share=0.5)


class Lazy:
    """What of a lazy frame of polars counts here: its table isn't computed yet."""

    def collect(self) -> pandas.DataFrame:
        return pandas.DataFrame({"a": [1.0, 2.0], "label": [0, 1]})


def test_what_is_no_frame() -> None:
    with pytest.raises(InputError, match="should be a pandas or polars frame, not a list"):
        adabest.from_frame([[1, 2]], test_share=0.5)
    with pytest.raises(InputError, match=r"not a \w+; collect\(\) makes a frame of it"):
        adabest.from_frame(Lazy(), test_share=0.5)
    with pytest.raises(InputError, match="has no rows"):
        adabest.from_frame(pandas.DataFrame({"a": [], "label": []}), test_share=0.5)


def test_no_package_is_imported_unless_given() -> None:
    code = "import sys, adabest; adabest.from_frame; print({'pandas', 'polars', 'pyarrow', 'PIL'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


class TestArrays:
    @pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.coo_matrix])
    def test_sparse_matrices_become_dense(self, kind: Any) -> None:
        dense = np.array([[0, 1.5], [2, 0]], np.float32)
        data = adabest.from_arrays(kind(dense), [0, 1], kind(dense[:1]), [1])
        assert data.x_train[:].tolist() == dense.tolist()
        assert data.x_test.tolist() == [[0, 1.5]]

    def test_sparse_tensors_become_dense(self) -> None:
        dense = torch.tensor([[0, 1.5], [2, 0]])
        assert adabest.from_arrays(dense.to_sparse(), [0, 1], dense, [0, 1]).x_train[:].tolist() == dense.tolist()

    def test_those_beyond_memory_are_refused(self) -> None:
        huge = scipy.sparse.csr_array((10**6, 10**9), dtype=np.float32)
        with pytest.raises(
            InputError, match=r"x_train, a sparse matrix, would need about 8 PB .*\(1000000, 1000000000\)"
        ):
            adabest.from_arrays(huge, np.zeros(10**6, int), huge, np.zeros(10**6, int))

    @pytest.mark.parametrize("kind", [list, np.array, pandas.Series])
    def test_labels_and_clients_may_be_texts(self, kind: Any) -> None:
        x = np.zeros((3, 2), np.float32)
        data = adabest.from_arrays(x, kind(["c", "a", "b"]), x[:1], kind(["c"]), clients=kind(["v", "u", "v"]))
        assert data.names == ("a", "b", "c")
        assert [data.y_train.tolist(), data.y_test.tolist()] == [[2, 0, 1], [2]]
        assert data.clients is not None
        assert data.clients.tolist() == [1, 0, 1]

    def test_a_text_that_only_test_labels_hold_is_named(self) -> None:
        x = np.zeros((2, 2), np.float32)
        with pytest.warns(UserWarning, match=r"y_test has 2 labels that no training sample has: 'cart', 'dgo'\."):
            adabest.from_arrays(x, ["cat", "dog"], x, ["cart", "dgo"])

    def test_names_beside_texts_are_refused(self) -> None:
        x = np.zeros((2, 2), np.float32)
        with pytest.raises(InputError, match="labels that are texts bring their names; leave names out"):
            adabest.from_arrays(x, ["a", "b"], x, ["a", "b"], names=("a", "b"))

    def test_texts_beside_numbers_are_refused(self) -> None:
        x = np.zeros((1, 2), np.float32)
        with pytest.raises(InputError, match="only one of y_train and y_test holds texts"):
            adabest.from_arrays(x, ["a"], x, [0])
