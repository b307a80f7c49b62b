"""LEAF's JSON, with its users as clients."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from adabest.data.leaf import LETTERS
from adabest.data.loading import load_dataset
from adabest.errors import InputError
from adabest.registry import naming

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


VERSES: dict[str, Any] = {"HAMLET": (["To be", "o be,"], [",", " "]), "OTHELLO": (["Zounds"[:5]], ["s"])}
TWEET = ["1467", "Mon Apr 06 22:19:45 PDT 2009", "NO_QUERY", "ann"]
TWEETS: dict[str, Any] = {
    "bob": ([[*TWEET, "so sad"], [*TWEET, "so glad"]], [0, 1]),
    "ann": ([[*TWEET, "hm"]], [0]),
}


class TestShakespeare:
    def test_letters_are_those_of_leaf(self, tmp_path: Path) -> None:
        assert (len(LETTERS), len(set(LETTERS))) == (80, 80)
        assert (LETTERS[:3], LETTERS[-3:], LETTERS.find("A"), LETTERS.find("a")) == ("\n !", "yz}", 25, 53)
        data = load_dataset(write(tmp_path / "plays", [content(VERSES)], [content(VERSES)]))
        assert data.classes == 80
        assert data.names[:3] == ("newline", "space", "!")
        assert data.holds_ids
        assert data.x_train[:].tolist()[0] == [LETTERS.find(letter) for letter in "To be"]
        assert [data.names[label] for label in data.y_train] == [",", "space", "s"]
        assert data.clients is not None
        assert data.clients.tolist() == [0, 0, 1]

    def test_unknown_letters_have_the_last_position(self, tmp_path: Path) -> None:
        odd = {"u": (["a~é"], ["_"])}
        data = load_dataset(write(tmp_path / "plays", [content(odd)], [content(odd)]))
        assert data.x_train[:].tolist() == [[53, 79, 79]]
        assert data.y_train.tolist() == [79]

    @pytest.mark.parametrize(
        ("users", "said"),
        [
            ({"u": (["ab", "abc"], ["c", "d"])}, "user u: sample 1 of x should be a text of 2 letters, as the first"),
            ({"u": (["ab", 3], ["c", "d"])}, "user u: sample 1 of x should be a text of 2 letters"),
            ({"u": ([""], ["c"])}, "sample 0 of x should be a text of 80 letters"),
            ({"u": (["ab"], ["cd"])}, "user u: sample 0 of y should be one letter, the one that follows the text"),
            ({"u": (["ab", "cd"], ["c", 3])}, "sample 1 of y should be one letter"),
            ({"u": (["ab"], ["c", "d"])}, "user u: x has 1 texts and y 2 letters"),
            ({"u": (["ab"], ["c"]), "v": (["abc"], ["c"])}, "user v: inputs of shape (3,), but those before have (2,)"),
            ({"u": (["ab"], ["c"]), "v": ([[1.0]], [0])}, "user v: x and y hold numbers, but those before letters"),
            ({"u": (["ab"], [1])}, "or texts and the letters that follow, as in Shakespeare; or tweets"),
        ],
    )
    def test_wrong_contents_are_named(self, users: dict[str, Any], said: str, tmp_path: Path) -> None:
        with pytest.raises(InputError) as caught:
            load_dataset(write(tmp_path / "plays", [content(users)]))
        assert "all_data_0.json, " in str(caught.value)
        assert said in str(caught.value)

    @pytest.mark.parametrize("option", ["shape=5", "length=4", "tokenizer=a:b"])
    def test_options_of_other_data_are_refused(self, option: str, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="says nothing about letters, which the files hold; leave it out"):
            load_dataset(write(tmp_path / "plays", [content(VERSES)], [content(VERSES)]) + f",{option}")

    def test_labels_are_always_letters(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="labels of Shakespeare are LEAF's 80 letters; leave labels= and classes="):
            load_dataset(write(tmp_path / "plays", [content(VERSES)], [content(VERSES)]) + ",classes=80")


class TestSent140:
    def test_tweets_are_read_by_their_characters(self, tmp_path: Path) -> None:
        data = load_dataset(write(tmp_path / "set", [content(TWEETS)], [content(TWEETS)]) + ",length=6")
        letters = {letter: number for number, letter in enumerate(sorted(set("so sadso gladhm")), start=2)}
        assert data.x_train[0].tolist() == [letters[letter] for letter in "so sad"]
        assert data.x_train[2].tolist() == [letters["h"], letters["m"], 0, 0, 0, 0]
        assert (data.y_train.tolist(), data.classes) == ([0, 1, 0], 2)
        assert data.clients is not None
        assert data.clients.tolist() == [1, 1, 0]

    def test_tweets_are_read_by_a_tokenizer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "tweet_words.py").write_text(
            "def lengths(text):\n    return [len(word) for word in text.split()]\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        name = write(tmp_path / "set", [content(TWEETS)], [content(TWEETS)]) + ",tokenizer=tweet_words:lengths,length=2"
        with naming(name):
            assert load_dataset(name).x_train[:].tolist() == [[2, 3], [2, 4], [2, 0]]

    @pytest.mark.parametrize(
        ("users", "said"),
        [
            ({"u": ([[*TWEET, "a"], [*TWEET]], [0, 1])}, "user u: sample 1 of x isn't a tweet of Sent140: id, date"),
            ({"u": ([[*TWEET, "a"], "b"], [0, 1])}, "user u: sample 1 of x isn't a tweet of Sent140"),
            ({"u": ([[*TWEET, "a"]], [0, 1])}, "user u: x has 1 inputs and y 2 labels"),
            ({"u": ([[*TWEET, "a"]], ["0 or 1"])}, "user u: y should hold a whole number for each of 1 inputs"),
            ({"u": ([[*TWEET, "a"]], [4])}, "as in classes=5"),
        ],
    )
    def test_wrong_contents_are_named(self, users: dict[str, Any], said: str, tmp_path: Path) -> None:
        with pytest.raises(InputError) as caught:
            load_dataset(write(tmp_path / "set", [content(users)], [content({"u": ([[*TWEET, "a"]], [0])})]))
        assert said in str(caught.value)

    def test_a_split_of_other_data_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="train holds tweets, but test numbers; both should be of the same data"):
            load_dataset(write(tmp_path / "set", [content(TWEETS)], [content(TEST)]))


def test_classes_without_samples_are_declared_or_mapped(tmp_path: Path) -> None:
    name = write(tmp_path / "set", [content({"a": ([[1.0, 2.0]], [61])})])
    with pytest.raises(InputError, match=r"has the label 0 and 59 more, but some have 61; .* as in classes=62"):
        load_dataset(name)
    assert load_dataset(f"{name},classes=62").classes == 62
    assert load_dataset(f"{name},labels=map").names == ("2", "61")
    assert load_dataset(f"{name},labels=numbers").y_train.tolist() == [61.0]


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none doesn't exist, or is no folder; .* folders train and test"):
        load_dataset(f"leaf,path={tmp_path / 'none'}")
