"""Labels with gaps, quantities and several columns of labels, in every form that data may have."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import adabest
from adabest.data.loading import load_dataset
from adabest.errors import InputError

X = np.zeros((3, 2), np.float32)
HOUSES = "area,price,garden,lift,part\n1,1.5,1,false,train\n2,3,0,true,train\n3,2.25,1,1,test\n"


@pytest.fixture
def houses(tmp_path: Path) -> Path:
    (tmp_path / "houses.csv").write_text(HOUSES)
    return tmp_path / "houses.csv"


class TestGaps:
    @pytest.mark.parametrize(
        ("train", "test", "said"),
        [
            ([0, 1, 3], [0], "has the label 2, but some have 3; labels should count the classes from 0 without gaps"),
            ([1, 2, 3], [2], "has the label 0, but some have 3"),
            ([0, 1, 0], [9], "has the label 2 and 6 more, but some have 9"),
        ],
    )
    def test_a_missing_class_is_named(self, train: list[int], test: list[int], said: str) -> None:
        with pytest.raises(InputError) as caught:
            adabest.from_arrays(X, train, X[:1], test, name="odd")
        assert str(caught.value).startswith("data set odd: no sample of y_train or y_test ")
        assert said in str(caught.value)
        assert "labels=map maps those" in str(caught.value)
        assert "if these are quantities, give them as floating-point numbers" in str(caught.value)
        assert f"as in classes={max(*train, *test) + 1}" in str(caught.value)

    def test_classes_without_samples_may_be_declared(self) -> None:
        assert adabest.from_arrays(X, [0, 1, 3], X[:1], [0], classes=6).classes == 6
        assert adabest.from_arrays(X, [0, 1, 3], X[:1], [0], names=("a", "b", "c", "d")).classes == 4
        with pytest.raises(InputError, match="there is a label 3, but only 2 classes from 0"):
            adabest.from_arrays(X, [0, 1, 3], X[:1], [0], classes=2)

    def test_a_declared_number_of_classes_changes_nothing_else(self) -> None:
        plain = adabest.from_arrays(X, [0, 1, 2], X[:1], [0])
        assert adabest.from_arrays(X, [0, 1, 2], X[:1], [0], classes=3).fingerprint() == plain.fingerprint()

    @settings(max_examples=30)
    @given(st.lists(st.integers(-5, 40), min_size=2, max_size=9), st.integers(1, 8))
    def test_mapping_keeps_the_order_and_leaves_no_gap(self, values: list[int], cut: int) -> None:
        cut = min(cut, len(values) - 1)
        x = np.zeros((len(values), 1), np.float32)
        data = adabest.from_arrays(x[:cut], values[:cut], x[cut:], values[cut:], labels="map")
        assert [int(data.names[label]) for label in [*data.y_train.tolist(), *data.y_test.tolist()]] == values
        assert data.names == tuple(map(str, sorted(set(values))))

    def test_quantities_and_texts_are_mapped_too(self) -> None:
        assert adabest.from_arrays(X, [0.5, 2, -1], X[:1], [2.0], labels="map").names == ("-1.0", "0.5", "2.0")
        assert adabest.from_arrays(X, ["b", "a", "c"], X[:1], ["c"], labels="map").names == ("a", "b", "c")
        names = adabest.from_arrays(X, [0, 2, 0], X[:1], [2], names=("a", "b", "c"), labels="map").names
        assert names == ("a", "c"), "those that occur"

    def test_several_labels_a_sample_may_leave_numbers_out(self) -> None:
        assert adabest.from_arrays(X, np.full((3, 4), 9), X[:1], np.full((1, 4), -100)[:, :4] + 109).classes == 10

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"labels": "maps"}, "data set arrays: labels = 'maps' should be 'count', 'map' or 'numbers'"),
            ({"classes": 0}, "data set arrays: classes = 0 should be the number of classes, as in classes=10"),
            ({"classes": True}, "classes = True should be the number of classes"),
            ({"classes": 3, "labels": "map"}, "and labels=map counts none; leave one of the two out"),
            ({"labels": "map", "names": ("a",)}, "labels should count the 1 names from 0; there are 0 to 2"),
        ],
    )
    def test_wrong_options_are_named(self, options: dict[str, Any], said: str) -> None:
        with pytest.raises(InputError) as caught:
            adabest.from_arrays(X, [0, 1, 2], X[:1], [0], **options)
        assert said in str(caught.value)

    def test_what_cannot_be_mapped_or_counted_is_named(self) -> None:
        with pytest.raises(InputError, match=r"labels=map takes one label a sample, not y_train \(3, 2\)"):
            adabest.from_arrays(X, np.zeros((3, 2), int), X, np.zeros((3, 2), int), labels="map")
        with pytest.raises(InputError, match="classes = 3, but y_train holds quantities"):
            adabest.from_arrays(X, [0.5, 1, 2], X[:1], [0.5], classes=3)
        with pytest.raises(InputError, match="y_train holds values that aren't finite"):
            adabest.from_arrays(X, [np.nan, 1, 2], X[:1], [0.5], labels="map")
        with pytest.raises(
            InputError, match=r"the label -1; labels count from 0. labels=map maps any numbers.* if these"
        ):
            adabest.from_arrays(X, [-1, 1, 1], X[:1], [1])

    def test_a_file_of_arrays_has_the_same_options(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.npz"
        np.savez(path, x_train=X, y_train=[-1, 1, 3], x_test=X, y_test=[1, 1, 1], clients=["a", "b", "a"])
        with pytest.raises(InputError, match=r"mine\.npz: data set mine: y_train has the label -1"):
            load_dataset(str(path))
        data = load_dataset(f"npz,path={path},labels=map")
        assert (data.y_train.tolist(), data.names, data.classes) == ([0, 1, 2], ("-1", "1", "3"), 3)
        assert data.clients is not None
        np.savez(path, x_train=X, y_train=[0, 1, 3], x_test=X, y_test=[1, 1, 1])
        assert load_dataset(f"npz,path={path},classes=10").classes == 10
        quantities = load_dataset(f"npz,path={path},labels=numbers")
        assert quantities.y_train.dtype == torch.float32

    def test_a_table_and_a_frame_declare_classes_too(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("x,label\n1,0\n2,3\n3,0\n4,3\n")
        name = f"table,path={tmp_path / 'a.csv'},test_share=0.5"
        with pytest.raises(InputError, match=r"are 0, 3, without 1; .* as in classes=4"):
            load_dataset(name)
        data = load_dataset(f"{name},classes=5")
        assert (data.classes, sorted(data.y_train.tolist()), data.names) == (5, [0, 3], ())
        frame = pandas.read_csv(tmp_path / "a.csv")
        assert adabest.from_frame(frame, test_share=0.5, classes=5).fingerprint() == data.fingerprint()
        with pytest.raises(InputError, match="there is a label 3, but only 2 classes from 0"):
            load_dataset(f"{name},classes=2")


class TestTargets:
    def test_a_column_may_hold_quantities(self, houses: Path) -> None:
        data = load_dataset(f"table,path={houses},label=price,split=part,labels=numbers,features=area")
        assert data.y_train.dtype == torch.float32
        assert (data.y_train.tolist(), data.y_test.tolist(), data.classes) == ([1.5, 3.0], [2.25], 1)
        frame = pandas.read_csv(houses)
        given = adabest.from_frame(frame, label="price", split="part", labels="numbers", features=["area"])
        assert given.fingerprint() == data.fingerprint()

    def test_several_columns_hold_answers_or_quantities(self, houses: Path) -> None:
        data = load_dataset(f"table,path={houses},label=garden+lift,split=part,features=area")
        assert (data.y_train.tolist(), data.y_test.tolist()) == ([[1, 0], [0, 1]], [[1, 1]])
        assert data.y_train.dtype == torch.int64
        both = load_dataset(f"table,path={houses},label=price+garden,split=part,labels=numbers,features=area")
        assert both.y_train.tolist() == [[1.5, 1], [3, 0]]
        frame = pandas.read_csv(houses, dtype={"lift": str})
        given = adabest.from_frame(frame, label=["garden", "lift"], split="part", features=["area"])
        assert given.fingerprint() == data.fingerprint()

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (
                "label=price",
                "line 2, column 'price': the label '1.5' isn't a whole number; labels name classes. labels=numbers",
            ),
            ("label=part,labels=numbers,drop=lift", "line 2, column 'part': the label 'train' isn't a finite number"),
            ("label=garden+area", "line 3, column 'area': the label '2' should be 0 or 1, in each of several columns"),
            ("label=garden+lift,labels=map", "labels=map is for one column of labels, and there are 2; leave it out"),
            ("label=garden+lift,classes=2", "classes=2 is for one column of labels, and there are 2"),
            ("label=garden+prize", "has no column 'prize' for label=...; did you mean 'price'?"),
            ("label=garden+garden", "the column 'garden' is named twice, by label= and by label="),
        ],
    )
    def test_wrong_labels_are_named(self, options: str, said: str, houses: Path) -> None:
        with pytest.raises(InputError) as caught:
            load_dataset(
                f"table,path={houses},{'test_share=0.4' if 'label=part' in options else 'split=part'},{options}"
            )
        assert said in str(caught.value)

    @pytest.mark.parametrize(
        ("columns", "task", "metric"),
        [("price,labels=numbers", "regression", "rmse"), ("garden+lift", "multi-label", "f1_micro")],
    )
    def test_such_a_table_is_trained_on(self, columns: str, task: str, metric: str, tmp_path: Path) -> None:
        rows = [f"{n % 7},{n % 5},{n % 7 / 2},{n % 2},{n % 3 % 2}" for n in range(60)]
        (tmp_path / "houses.csv").write_text("\n".join(["area,age,price,garden,lift", *rows]))
        name = f"table,path={tmp_path / 'houses.csv'},features=area+age,label={columns},test_share=0.2"
        settings: dict[str, Any] = {
            "model": "logistic",
            "clients": 4,
            "partition": "iid",
            "rounds": 1,
            "algorithm": "fedavg",
        }
        done = adabest.run(dataset=name, task=task, out=tmp_path / "run", show=False, **settings)
        assert f"scored_{metric}" in done.final
