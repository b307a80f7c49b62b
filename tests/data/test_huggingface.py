"""Image sets of Hugging Face's ``datasets``, made on disk: grey or colour, columns found or named, split by client."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import adabest
from adabest.data.dataset import Dataset
from adabest.data.loading import load_dataset
from adabest.errors import InputError

datasets = pytest.importorskip("datasets", reason="needs the extra huggingface")
PIL_Image = pytest.importorskip("PIL.Image", reason="needs the extra huggingface")

NAMES = ["cat", "dog", "eel"]


@pytest.fixture(autouse=True)
def no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


def grey(number: int, size: tuple[int, int] = (5, 4)) -> np.ndarray:
    """An image 5 pixels high and 4 wide; its first pixel tells which one it is."""
    image = np.arange(size[0] * size[1], dtype=np.uint8).reshape(size)
    image[0, 0] = 100 + number
    return image


def colour(number: int) -> np.ndarray:
    return np.stack([grey(number), grey(number) + 1, grey(number) + 2], axis=2)


def samples(
    count: int,
    picture: Callable[[int], Any] = grey,
    labels: Sequence[Any] = (0, 1, 2),
    label: Any = None,
    **columns: Any,
) -> Any:
    """Some samples, the labels of which take turns."""
    features = {"picture": datasets.Image(), "kind": label or datasets.ClassLabel(names=NAMES)}
    rows: dict[str, Any] = {
        "picture": [PIL_Image.fromarray(picture(number)) for number in range(count)],
        "kind": [labels[number % len(labels)] for number in range(count)],
    }
    for name, values in columns.items():
        features[name] = datasets.Value("string" if isinstance(values[0], str) else "int64")
        rows[name] = values
    return datasets.Dataset.from_dict(rows, features=datasets.Features(features))


def save(path: Path, train: Any, test: Any = None) -> str:
    splits = {"train": train} if test is None else {"train": train, "test": test}
    datasets.DatasetDict(splits).save_to_disk(path)
    return f"huggingface,path={path}"


class TestReading:
    def test_grey_images_are_read(self, tmp_path: Path) -> None:
        data = load_dataset(save(tmp_path / "set", samples(7), samples(2)))
        assert data.name == "set"
        assert data.x_train.dtype == torch.uint8
        assert data.input_shape == (1, 5, 4)
        assert data.x_train[:, 0, 0, 0].tolist() == [100, 101, 102, 103, 104, 105, 106]
        assert data.x_test[:, 0, 0, 0].tolist() == [100, 101]
        np.testing.assert_array_equal(data.x_train[3, 0].numpy(), grey(3))
        assert data.y_train.tolist() == [0, 1, 2, 0, 1, 2, 0]
        assert data.y_test.tolist() == [0, 1]
        assert data.classes == 3
        assert data.clients is None

    def test_colour_images_are_read(self, tmp_path: Path) -> None:
        data = load_dataset(save(tmp_path / "set", samples(4, colour), samples(2, colour)))
        assert data.input_shape == (3, 5, 4)
        np.testing.assert_array_equal(data.x_train[2].numpy(), colour(2).transpose(2, 0, 1))

    def test_a_mixture_becomes_colour(self, tmp_path: Path) -> None:
        mixed = samples(4, lambda number: colour(number) if number == 3 else grey(number))
        data = load_dataset(save(tmp_path / "set", mixed, samples(2)))
        assert data.input_shape == (3, 5, 4)
        np.testing.assert_array_equal(data.x_train[0].numpy(), np.stack([grey(0)] * 3))
        np.testing.assert_array_equal(data.x_test[1].numpy(), np.stack([grey(1)] * 3))
        np.testing.assert_array_equal(data.x_train[3].numpy(), colour(3).transpose(2, 0, 1))

    def test_transparency_is_dropped(self, tmp_path: Path) -> None:
        def glass(number: int) -> np.ndarray:
            return np.dstack([colour(number), np.full((5, 4), 7, np.uint8)])

        data = load_dataset(save(tmp_path / "set", samples(3, glass), samples(1, glass)))
        np.testing.assert_array_equal(data.x_train[1].numpy(), colour(1).transpose(2, 0, 1))

    def test_a_class_without_samples_counts(self, tmp_path: Path) -> None:
        assert load_dataset(save(tmp_path / "set", samples(4, labels=(0, 1)), samples(1))).classes == 3

    def test_labels_may_be_numbers_or_texts(self, tmp_path: Path) -> None:
        number, text = datasets.Value("int64"), datasets.Value("string")
        plain = save(tmp_path / "numbers", samples(4, label=number, labels=(4, 1)), samples(1, label=number))
        with pytest.raises(
            InputError, match="no sample of y_train or y_test has the label 2 and 1 more, but some have 4"
        ):
            load_dataset(f"{plain},label=kind")
        data = load_dataset(f"{plain},label=kind,classes=5")
        assert (data.y_train.tolist(), data.y_test.tolist(), data.classes) == ([4, 1, 4, 1], [0], 5)
        data = load_dataset(f"{plain},label=kind,labels=map")
        assert (data.y_train.tolist(), data.y_test.tolist(), data.names) == ([2, 1, 2, 1], [0], ("0", "1", "4"))
        words = samples(4, label=text, labels=("eel", "cat")), samples(1, label=text, labels=("eel",))
        data = load_dataset(f"{save(tmp_path / 'words', *words)},label=kind")
        assert (data.y_train.tolist(), data.y_test.tolist(), data.classes) == ([1, 0, 1, 0], [1], 2)

    def test_a_parquet_file_and_a_folder_of_them_are_read(self, tmp_path: Path) -> None:
        (tmp_path / "files").mkdir()
        samples(6).to_parquet(tmp_path / "files" / "train-00000.parquet")
        samples(3).to_parquet(tmp_path / "files" / "test-00000.parquet")
        whole = load_dataset(f"huggingface,path={tmp_path / 'files'}")
        assert (len(whole.y_train), len(whole.y_test)) == (6, 3)
        alone = load_dataset(f"huggingface,path={tmp_path / 'files' / 'train-00000.parquet'},test_share=0.5")
        assert (len(alone.y_train), len(alone.y_test)) == (3, 3)

    def test_a_folder_of_images_is_read(self, tmp_path: Path) -> None:
        for split, count in (("train", 4), ("test", 2)):
            for number in range(count):
                place = tmp_path / "images" / split / NAMES[number % 2] / f"{number}.png"
                place.parent.mkdir(parents=True, exist_ok=True)
                PIL_Image.fromarray(grey(number)).save(place)
        data = load_dataset(f"huggingface,path={tmp_path / 'images'}")
        found = sorted(zip(data.x_train[:, 0, 0, 0].tolist(), data.y_train.tolist(), strict=True))
        assert found == [(100, 0), (101, 1), (102, 0), (103, 1)]
        assert len(data.y_test) == 2


class TestOptions:
    def test_columns_and_splits_are_chosen_by_name(self, tmp_path: Path) -> None:
        two = samples(6, other=list(range(6))).add_column("second", [2, 1, 0, 2, 1, 0])
        two = two.cast_column("second", datasets.ClassLabel(names=NAMES))
        datasets.DatasetDict({"one": two, "two": two.select([0, 1])}).save_to_disk(tmp_path / "set")
        specification = f"huggingface,path={tmp_path / 'set'},train=one,test=two"
        with pytest.raises(InputError, match="has kind and second for labels; choose one by label="):
            load_dataset(specification)
        data = load_dataset(f"{specification},label=second,image=picture")
        assert data.y_train.tolist() == [2, 1, 0, 2, 1, 0]
        assert data.y_test.tolist() == [2, 1]

    @pytest.mark.parametrize("whose", [[30, 10, 10, 20, 30, 10], ["c", "a", "a", "b", "c", "a"]])
    def test_a_client_column_makes_clients(self, whose: list[Any], tmp_path: Path) -> None:
        data = load_dataset(save(tmp_path / "set", samples(6, writer=whose), samples(2)) + ",client=writer")
        assert data.clients is not None
        assert data.clients.tolist() == [2, 0, 0, 1, 2, 0]

    def test_a_share_of_samples_becomes_the_test_set(self, tmp_path: Path) -> None:
        writers = [f"writer {number % 5}" for number in range(60)]
        specification = save(tmp_path / "set", samples(60, writer=writers)) + ",client=writer,test_share=0.2"
        data = load_dataset(specification)
        assert (len(data.y_train), len(data.y_test)) == (48, 12)
        assert data.y_test.bincount().tolist() == [4, 4, 4], "every class has its share"
        everyone = torch.cat([data.x_train[:], data.x_test])[:, 0, 0, 0]
        assert sorted(everyone.tolist()) == list(range(100, 160)), "and every sample is used once"
        assert data.clients is not None
        for pixel, client, label in zip(data.x_train[:, 0, 0, 0].tolist(), data.clients, data.y_train, strict=True):
            assert int(client) == (pixel - 100) % 5
            assert int(label) == (pixel - 100) % 3
        assert load_dataset(specification).fingerprint() == data.fingerprint(), "the same ones every time"


class TestMistakes:
    def refused(self, specification: str) -> str:
        with pytest.raises(InputError) as refusal:
            load_dataset(specification)
        return str(refusal.value)

    def test_images_of_different_sizes_are_refused(self, tmp_path: Path) -> None:
        train = samples(4, lambda number: grey(number, (5, 6) if number == 2 else (5, 4)))
        message = self.refused(save(tmp_path / "set", train, samples(1)))
        assert message.endswith(
            "image 2 of train has 6 × 5 pixels, but the first one 4 × 5; all should have the same size"
        )

    def test_pixels_of_more_than_a_byte_are_refused(self, tmp_path: Path) -> None:
        deep = samples(2, lambda number: grey(number).astype(np.int32))
        assert "image 0 of train can't be decoded: pixels of more than a byte (mode I)" in self.refused(
            save(tmp_path / "set", deep, samples(1))
        )

    def test_a_damaged_image_is_named(self, tmp_path: Path) -> None:
        raw = samples(3).cast_column("picture", datasets.Image(decode=False))
        damaged = raw.map(
            lambda row, number: {"picture": {"bytes": b"rubbish" if number == 1 else row["picture"]["bytes"]}},
            with_indices=True,
            features=raw.features,
        ).cast_column("picture", datasets.Image())
        assert "image 1 of train can't be decoded" in self.refused(save(tmp_path / "set", damaged, samples(1)))

    @pytest.mark.parametrize(
        ("option", "words"),
        [
            ("image=kind", "has no column of images 'kind'; Known: picture"),
            ("label=knid", "has no column 'knid'; did you mean 'kind'"),
            ("client=writer", "has no column 'writer'"),
            ("train=training", "has no split 'training'; did you mean 'train'"),
            ("test=tset", "has no split 'tset' to test with; it has train, test. Name one, as in test=validation"),
            ("test=train", "the split 'train' can't be trained and tested with; see test_share"),
            ("test=train,test_share=0", "test_share = 0 of 6 samples leaves none"),
            ("test=train,test_share=0.99", "test_share = 0.99 of 6 samples leaves none"),
            (
                "test_share=0.5",
                "has a split 'test', so test_share = 0.5 can't be given, too; leave test_share out to test",
            ),
            ("test_share=some", "test_share should be a number, not 'some'"),
            ("labels=kind", "labels = 'kind' isn't one of its values; Known: count, map, numbers"),
            ("lable=kind", "data set 'huggingface' has no option 'lable'; did you mean 'label'"),
            ("label=picture", "'picture' should hold a whole number or a text for every sample"),
        ],
    )
    def test_bad_options_are_refused(self, option: str, words: str, tmp_path: Path) -> None:
        assert words in self.refused(f"{save(tmp_path / 'set', samples(6), samples(2))},{option}")

    def test_a_missing_test_split_is_refused(self, tmp_path: Path) -> None:
        message = self.refused(save(tmp_path / "set", samples(6)))
        assert "has no split 'test' to test with; it has train. Name one" in message
        assert "or put a share of the training samples aside, as in test_share=0.1" in message

    def test_missing_images_and_labels_are_refused(self, tmp_path: Path) -> None:
        words = datasets.Dataset.from_dict({"text": ["a"], "label": [1]})
        assert "has no column of images; its columns are text, label" in self.refused(save(tmp_path / "words", words))
        bare = samples(2).remove_columns("kind")
        assert "has no column for labels; choose one by label=..., of picture" in self.refused(
            save(tmp_path / "bare", bare)
        )

    def test_class_names_that_differ_are_refused(self, tmp_path: Path) -> None:
        other = samples(2, label=datasets.ClassLabel(names=NAMES[::-1]))
        assert "the splits differ in the class names of 'kind'" in self.refused(
            save(tmp_path / "set", samples(3), other)
        )

    def test_the_message_says_where_the_data_should_be(self, tmp_path: Path) -> None:
        assert "needs either path=..., for one on disk, or name=..." in self.refused("huggingface")
        assert "needs either path" in self.refused("huggingface,path=a,name=b")
        assert "none doesn't exist; a set on the hub is named by name=" in self.refused(
            f"huggingface,path={tmp_path / 'none'}"
        )
        (tmp_path / "empty").mkdir()
        assert "empty can't be loaded by the package datasets" in self.refused(f"huggingface,path={tmp_path / 'empty'}")
        (tmp_path / "broken.parquet").write_bytes(b"rubbish")
        assert "broken.parquet can't be loaded" in self.refused(f"huggingface,path={tmp_path / 'broken.parquet'}")
        assert "somebody/something can't be loaded" in self.refused("huggingface,name=somebody/something")

    def test_a_missing_package_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "datasets", None)
        message = self.refused(f"huggingface,path={tmp_path}")
        assert message.endswith('pip install "adabest[huggingface]"')


def test_data_of_the_hub_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load(*arguments: Any) -> Any:
        asked.append(arguments)
        return datasets.DatasetDict({"train": samples(3), "test": samples(1)})

    monkeypatch.setattr(datasets, "load_dataset", load)
    data: Dataset = load_dataset("huggingface,name=somebody/something,subset=small")
    assert asked == [("somebody/something", "small")]
    assert data.name == "somebody/something"


NOTES: dict[str, Any] = {
    "body": ["ab", "ba b", "", "cc"],
    "label": [0, 1, 1, 0],
    "who": ["v", "u", "v", "u"],
    "age": [3, 4, 5, 6],
    "height": [0.5, 1.5, 2.5, 3.5],
    "ids": [[1, 2], [3, 4], [5, 6], [700, 8]],
}


def notes(**changes: Any) -> Any:
    return datasets.Dataset.from_dict({**NOTES, **changes})


class TestObjects:
    def test_images_are_read(self, tmp_path: Path) -> None:
        both = datasets.DatasetDict({"train": samples(7, writer=list(range(7))), "test": samples(2)})
        data = adabest.from_huggingface(both, client="writer", name="pets")
        assert data.name == "pets"
        assert data.names == tuple(NAMES)
        stored = load_dataset(save(tmp_path / "set", both["train"], both["test"]) + ",client=writer")
        assert data.fingerprint() == stored.fingerprint()

    def test_one_dataset_is_split_by_a_share(self) -> None:
        data = adabest.from_huggingface(samples(30), test_share=0.2)
        assert (len(data.y_train), len(data.y_test)) == (24, 6)

    def test_a_format_of_the_object_changes_nothing(self) -> None:
        plain = adabest.from_huggingface(notes(), features=["age", "height"], test_share=0.5)
        formatted = notes().with_format("numpy")
        again = adabest.from_huggingface(formatted, features=["age", "height"], test_share=0.5)
        assert again.fingerprint() == plain.fingerprint()

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            ([1], "pets should be a Dataset of the package datasets, or a DatasetDict of some, not list"),
            ({"train": "text"}, "not str"),
            (datasets.Dataset.from_dict({"a": [1]}).to_iterable_dataset(), "load it without streaming=True"),
        ],
    )
    def test_other_objects_are_refused(self, data: Any, said: str) -> None:
        with pytest.raises(InputError) as caught:
            adabest.from_huggingface(data, name="pets")
        assert said in str(caught.value)

    def test_a_split_without_samples_is_refused(self) -> None:
        empty = datasets.DatasetDict({"train": notes(), "test": notes().select([])})
        with pytest.raises(InputError, match="the split 'test' has no samples"):
            adabest.from_huggingface(empty, features=["age"])


class TestNumbers:
    def test_columns_of_numbers_become_float32(self, tmp_path: Path) -> None:
        name = save(tmp_path / "set", notes(), notes()) + ",features=height+age,client=who"
        data = load_dataset(name)
        assert data.x_train.dtype == torch.float32
        assert data.x_train[:].tolist() == [[0.5, 3], [1.5, 4], [2.5, 5], [3.5, 6]]
        assert data.clients is not None
        assert data.clients.tolist() == [1, 0, 1, 0]

    def test_lists_of_numbers_are_ids_pixels_or_numbers(self) -> None:
        ids = adabest.from_huggingface(notes(), features=["ids"], test_share=0.5)
        assert ids.holds_ids
        assert ids.id_range == (1, 700)
        floats = notes(ids=[[[0.5], [1]]] * 4)
        assert adabest.from_huggingface(floats, features=["ids"], test_share=0.5).input_shape == (2, 1)
        kinds = datasets.Features({"ids": datasets.List(datasets.Value("uint8")), "label": datasets.Value("int64")})
        pixels = datasets.Dataset.from_dict({"ids": [[1, 2]] * 4, "label": [0, 1, 1, 0]}, features=kinds)
        assert adabest.from_huggingface(pixels, features=["ids"], test_share=0.5).x_train.dtype == torch.uint8
        both = adabest.from_huggingface(notes(), features=["ids", "age"], test_share=0.5)
        assert (both.input_shape, both.x_train.dtype) == ((3,), torch.float32)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"age": [1, None, 3, 4]}, "pets, split train, column 'age', row 1 from 0 is empty"),
            ({"age": [[1, 2], [1], [2, 3], [1, 2]]}, "row 1 from 0 has numbers of another shape than row 0, (2,)"),
            ({"age": ["a", "b", "c", "d"]}, "column 'age' holds 'a', which isn't a number, or a list of numbers"),
        ],
    )
    def test_what_is_no_number_is_named(self, changes: dict[str, Any], said: str) -> None:
        with pytest.raises(InputError) as caught:
            adabest.from_huggingface(notes(**changes), features=["age"], test_share=0.5, name="pets")
        assert said in str(caught.value)

    def test_lists_of_different_lengths_in_splits_are_refused(self) -> None:
        both = {"train": notes(), "test": notes(ids=[[1]] * 4)}
        with pytest.raises(InputError, match=r"lists of \(2,\) and \(1,\) numbers; all should have one length"):
            adabest.from_huggingface(both, features=["ids"])

    def test_labels_may_be_quantities_or_several(self) -> None:
        train = notes(answer=[True, False, True, True])
        prices = adabest.from_huggingface(train, features=["age"], label="height", labels="numbers", test_share=0.5)
        assert (prices.y_train.dtype, len(prices.y_train)) == (torch.float32, 2)
        several = adabest.from_huggingface({"train": train, "test": train}, features=["age"], label=["label", "answer"])
        assert several.y_train.tolist() == [[0, 1], [1, 0], [1, 1], [0, 1]]
        assert several.y_train.dtype == torch.int64

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (
                {"label": "height"},
                "'height' should hold a whole number or a text for every sample, as a label; labels=n",
            ),
            ({"label": ["label", "age"]}, "'age' should hold 0 or 1 for every sample, as one of several columns"),
            ({"label": "body", "labels": "numbers"}, "'body' should hold a number for every sample, as labels=numbers"),
            ({"label": "age"}, "no sample of y_train or y_test has the label 0 and 2 more, but some have 6"),
            ({"features": "age"}, "features should be a list of columns, as in ['age']"),
            ({"text": "body"}, "inputs are those of features= or of text=; leave one of them out"),
            ({"features": ["agee"]}, "has no column 'agee'; did you mean 'age'?"),
        ],
    )
    def test_wrong_options_are_named(self, options: dict[str, Any], said: str) -> None:
        with pytest.raises(InputError) as caught:
            adabest.from_huggingface(notes(), **{"features": ["age"], "test_share": 0.5, **options})
        assert said in str(caught.value)

    def test_a_test_split_beside_a_share_is_left_unused_when_asked(self) -> None:
        both = {"train": notes(), "test": notes()}
        with pytest.raises(InputError, match=r"has a split 'test', .* or say test=train to leave the split unused"):
            adabest.from_huggingface(both, features=["age"], test_share=0.5)
        data = adabest.from_huggingface(both, features=["age"], test_share=0.5, test="train")
        assert (len(data.y_train), len(data.y_test)) == (2, 2)

    def test_a_text_that_only_the_test_split_has_is_named(self) -> None:
        mistyped = {"train": notes(), "test": notes(who=["v", "u", "w", "u"])}
        with pytest.warns(UserWarning, match="pets, split test has the label 'w', which no training sample has"):
            adabest.from_huggingface(mistyped, features=["age"], label="who", name="pets")

    @pytest.mark.parametrize("data", [notes(), datasets.DatasetDict({"train": notes()}), notes().select([])])
    def test_an_object_in_place_of_a_data_set_is_told_what_makes_one(self, data: Any, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"not a datasets Dataset.*; adabest\.from_huggingface\(…\) makes one"):
            adabest.run(dataset=data, out=tmp_path / "run", show=False)

    def test_a_declared_class_that_only_the_test_split_has_is_no_mistake(self) -> None:
        both = datasets.DatasetDict({"train": samples(4, labels=(0, 1)), "test": samples(2, labels=(0, 2))})
        assert adabest.from_huggingface(both).classes == 3

    def test_labels_are_mapped_when_asked(self) -> None:
        both = {"train": notes(), "test": notes()}
        assert adabest.from_huggingface(both, features=["age"], label="age", labels="map").names == ("3", "4", "5", "6")


class TestTexts:
    def test_texts_are_classified(self, tmp_path: Path) -> None:
        name = save(tmp_path / "set", notes(), notes(body=["bd"] * 4)) + ",text=body,length=3,client=who"
        data = load_dataset(name)
        assert data.x_train[:].tolist() == [[3, 4, 0], [4, 3, 2], [0, 0, 0], [5, 5, 0]]
        assert data.x_test[0].tolist() == [4, 1, 0]
        assert data.y_train.tolist() == [0, 1, 1, 0]
        assert data.clients is not None
        assert data.clients.tolist() == [1, 0, 1, 0]

    def test_the_next_token_is_predicted(self) -> None:
        both = {"train": notes(), "test": notes()}
        data = adabest.from_huggingface(both, text="body", length=2, next_token=True, client="who")
        assert data.x_train[:].tolist() == [[3, 0], [4, 3], [2, 0], [5, 0]]
        assert data.y_train.tolist() == [[4, -100], [3, 2], [4, -100], [5, -100]]
        assert data.clients is not None
        assert data.clients.tolist() == [1, 0, 0, 0]

    def test_a_tokenizer_is_taken(self) -> None:
        data = adabest.from_huggingface(
            {"train": notes(), "test": notes()}, text="body", length=2, tokenizer=lambda text: [len(text)], classes=9
        )
        assert data.x_train[:].tolist() == [[2, 0], [4, 0], [0, 0], [2, 0]]
        assert data.classes == 9

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"text": "age"}, "the column 'age' holds Value('int64'); it should hold texts, as text= says"),
            ({"text": "bodi"}, "has no column 'bodi'; did you mean 'body'?"),
            ({"text": "hole"}, "row 1 from 0 of train, column 'hole' is empty; leave the row out"),
            ({"text": "body", "tokenizer": lambda text: "no"}, "row 0 from 0 of train: the tokenizer gave 'no'"),
            ({"text": "body", "next_token": True, "label": "who"}, "label=who can't be given with next_token"),
            (
                {"text": "body", "next_token": True, "labels": "map"},
                "labels=map says nothing where next_token is given",
            ),
            ({"length": 3}, "length=... is for texts; name their column, too, as in text=body"),
            ({}, "has no column of images; its columns are body, label"),
        ],
    )
    def test_wrong_texts_are_named(self, options: dict[str, Any], said: str) -> None:
        with pytest.raises(InputError) as caught:
            adabest.from_huggingface(notes(hole=["a", None, "b", "c"]), test_share=0.5, **options)
        assert said in str(caught.value)
