"""Texts as ids: by characters, by a tokenizer, cut to a length or into windows; and what is said about wrong ones."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_runs import break_off

import adabest
from adabest.data.loading import load_dataset
from adabest.data.text import PADDING, UNCOUNTED, UNKNOWN, TextOptions, TextSamples, read_texts
from adabest.errors import InputError, Interrupted
from adabest.registry import naming, own_names

TEXTS = ["abba", "cab", "", "zoo"]
TEST = np.array([False, False, False, True])
ROWS = """body,who,kind,part
"a, b",ann,x,train
bb,bob,y,train
 c,ann,y,train
abz,bob,x,test
"""


def read(texts: list[str] = TEXTS, test: np.ndarray = TEST, **options: Any) -> TextSamples:
    return read_texts("notes", texts, test, TextOptions(**options), lambda row: f"row {row}")


def words(text: str) -> list[int]:
    """A tokenizer: the length of each word."""
    return [len(word) for word in text.split()]


class TestCharacters:
    def test_characters_of_training_texts_are_numbered_in_order(self) -> None:
        made = read(length=3)
        assert made.inputs.tolist() == [[2, 3, 3], [4, 2, 3], [0, 0, 0], [UNKNOWN] * 3]
        assert made.vocabulary == ("padding", "unknown", "a", "b", "c")
        assert made.following is None
        assert made.rows.tolist() == [0, 1, 2, 3]

    def test_windows_hold_what_follows(self) -> None:
        made = read(length=2, next_token=True)
        assert made.inputs.tolist() == [[2, 3], [3, PADDING], [4, 2], [1, 1]]
        assert made.following is not None
        assert made.following.tolist() == [[3, 3], [2, UNCOUNTED], [2, 3], [1, 1]]
        assert made.rows.tolist() == [0, 0, 1, 3]

    @settings(max_examples=25)
    @given(
        st.lists(st.text(max_size=12), min_size=1, max_size=6),
        st.lists(st.text(max_size=12), min_size=1, max_size=3),
        st.integers(1, 15),
    )
    def test_training_texts_can_be_read_back(self, train: list[str], other: list[str], length: int) -> None:
        test = np.arange(len(train) + len(other)) >= len(train)
        made = read([*train, *other], test, length=length)
        for text, ids in zip(train, made.inputs.tolist(), strict=False):
            kept = text[:length]
            assert "".join(made.vocabulary[number] for number in ids[: len(kept)]) == kept
            assert set(ids[len(kept) :]) <= {PADDING}
        if max(map(len, train)) > 1 and max(map(len, other)) > 1:
            cut = read([*train, *other], test, length=length, next_token=True)
            assert cut.following is not None
            for row, text in enumerate(train):
                mine = cut.rows == row
                pairs = [
                    (made.vocabulary[before], made.vocabulary[after])
                    for before, after in zip(cut.inputs[mine].flat, cut.following[mine].flat, strict=True)
                    if after != UNCOUNTED
                ]
                assert pairs == list(itertools.pairwise(text))

    def test_lone_halves_of_letters_are_characters(self) -> None:
        assert read(["\ud800a", "a"], np.array([False, True]), length=2).inputs.tolist() == [[3, 2], [2, 0]]

    def test_texts_too_short_for_a_next_token_are_refused(self) -> None:
        with pytest.raises(InputError, match="notes: no text to test with has two tokens or more"):
            read(["ab", "c"], np.array([False, True]), next_token=True)

    def test_rows_beyond_memory_are_refused(self) -> None:
        with pytest.raises(InputError, match=r"notes as ids of tokens would need about .*choose a smaller length="):
            read(length=10**15)


class TestTokenizers:
    @pytest.mark.parametrize(
        "tokenizer",
        [
            words,
            SimpleNamespace(encode=words),
            lambda text: tuple(words(text)),
            lambda text: np.array(words(text), np.int32),
            lambda text: torch.tensor(words(text)),
            SimpleNamespace(encode=lambda text: SimpleNamespace(ids=words(text))),
        ],
    )
    def test_functions_and_objects_are_taken(self, tokenizer: Any) -> None:
        made = read(["one two", "three", ""], np.array([False, True, False]), length=3, tokenizer=tokenizer)
        assert made.inputs.tolist() == [[3, 3, 0], [5, 0, 0], [0, 0, 0]]
        assert made.vocabulary == ()

    def test_an_object_may_have_its_own_padding(self) -> None:
        tokenizer = SimpleNamespace(encode=words, pad_token_id=7)
        assert read(["one", "two"], np.array([False, True]), length=2, tokenizer=tokenizer).inputs[0].tolist() == [3, 7]

    @pytest.mark.parametrize("given", [[0.5], [True], [-1], ["a"], [[1]], 3, None, "ab", [2**64], [2**63], object()])
    def test_what_is_no_list_of_ids_is_refused(self, given: Any) -> None:
        with pytest.raises(
            InputError, match=r"notes, row 0: the tokenizer gave .*; it should give a list of ids, whole"
        ):
            read(tokenizer=lambda text: given)

    def test_a_tokenizer_that_fails_is_told_with_its_text(self) -> None:
        def broken(text: str) -> list[int]:
            return [[1][text == "cab"]]

        with pytest.raises(InputError, match=r"notes, row 1: the tokenizer raised IndexError: .*test_text\.py, line"):
            read(tokenizer=broken)

    @pytest.mark.parametrize("tokenizer", [3, int, SimpleNamespace()])
    def test_what_is_no_tokenizer_is_refused(self, tokenizer: Any) -> None:
        with pytest.raises(InputError, match="it should be a function from a text to a list of whole numbers, or an"):
            read(tokenizer=tokenizer)

    def test_a_name_in_an_option_counts_as_named(self) -> None:
        assert own_names("table,path=a.csv,text=b,tokenizer=my:words") == ["my:words"]
        assert own_names("mine:data,tokenizer=my:words") == ["mine:data", "my:words"]
        assert own_names("dataset=table,path=a,tokenizer=my:words;digits") == ["my:words"]
        assert own_names("table,path=my:words,label=my:words") == []

    def test_a_name_that_no_call_gave_is_not_imported(self, tmp_path: Path) -> None:
        (tmp_path / "notes.csv").write_text(ROWS)
        name = f"table,path={tmp_path / 'notes.csv'},text=body,label=kind,split=part,tokenizer=nowhere:words"
        with pytest.raises(InputError, match="tokenizer 'nowhere:words' isn't imported: it was named by a file"):
            load_dataset(name)
        with naming(name), pytest.raises(InputError, match="can't import module 'nowhere'"):
            load_dataset(name)


class TestTables:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        (tmp_path / "notes.csv").write_text(ROWS)
        return tmp_path / "notes.csv"

    def test_texts_are_classified(self, path: Path) -> None:
        data = load_dataset(f"table,path={path},text=body,label=kind,client=who,split=part,length=4")
        letters = {" ": 2, ",": 3, "a": 4, "b": 5, "c": 6}
        assert data.x_train[:].tolist() == [[letters[letter] for letter in "a, b"], [5, 5, 0, 0], [2, 6, 0, 0]]
        assert data.x_test.tolist() == [[4, 5, UNKNOWN, 0]]
        assert (data.y_train.tolist(), data.y_test.tolist(), data.names) == ([0, 1, 1], [0], ("x", "y"))
        assert data.clients is not None
        assert data.clients.tolist() == [0, 1, 0]

    def test_the_next_token_is_predicted(self, path: Path) -> None:
        data = load_dataset(f"table,path={path},text=body,client=who,split=part,length=2,next_token=yes")
        assert data.x_train[:].tolist() == [[4, 3], [2, 0], [5, 0], [2, 0]]
        assert data.y_train.tolist() == [[3, 2], [5, UNCOUNTED], [5, UNCOUNTED], [6, UNCOUNTED]]
        assert data.names == ("padding", "unknown", " ", ",", "a", "b", "c")
        assert data.clients is not None
        assert data.clients.tolist() == [0, 0, 1, 0]

    def test_parquet_and_frames_hold_the_same(self, path: Path) -> None:
        frame = pandas.read_csv(path)
        frame.to_parquet(path.with_suffix(".parquet"))
        options = "text=body,label=kind,client=who,split=part,length=4"
        written = load_dataset(f"table,path={path},{options}")
        assert (
            load_dataset(f"table,path={path.with_suffix('.parquet')},{options}").fingerprint() == written.fingerprint()
        )
        given = adabest.from_frame(frame, text="body", label="kind", client="who", split="part", length=4)
        assert given.fingerprint() == written.fingerprint()

    def test_a_share_of_whole_texts_is_put_aside(self, path: Path) -> None:
        data = load_dataset(f"table,path={path},text=body,test_share=0.25,length=1,next_token=yes")
        assert len(data.y_train) + len(data.y_test) == 3 + 1 + 1 + 2
        assert data.clients is None

    def test_a_frame_takes_a_tokenizer_and_a_second_frame(self) -> None:
        frame = pandas.DataFrame({"body": ["a bb", "ccc"], "label": [0, 1]})
        data = adabest.from_frame(frame, text="body", test=frame[::-1], tokenizer=words, length=2)
        assert data.x_train[:].tolist() == [[1, 2], [3, 0]]
        assert data.x_test.tolist() == [[3, 0], [1, 2]]

    def test_a_call_in_python_names_a_tokenizer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "my_words.py").write_text("def lengths(text):\n    return [len(word) for word in text.split()]\n")
        monkeypatch.syspath_prepend(tmp_path)
        frame = pandas.DataFrame({"body": ["a bb", "ccc"], "label": [0, 1]})
        data = adabest.from_frame(frame, text="body", test=frame, tokenizer="my_words:lengths", length=2)
        assert data.x_train[:].tolist() == [[1, 2], [3, 0]]

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ("text=bodi", "notes.csv has no column 'bodi' for text=...; did you mean 'body'?"),
            ("text=body,length=0", "notes.csv: length = 0 should be a number of tokens, as in length=80"),
            ("text=body,features=who", "inputs are text=body or features=..., not both; leave one of them out"),
            ("text=body,standardise=yes", "standardise is for numbers, and inputs are texts; leave it out"),
            ("text=body,next_token=yes,label=who", "label=who can't be given with next_token, by which the tokens"),
            ("text=body,next_token=yes,labels=map", "labels=map says nothing where next_token is given; leave it out"),
            ("length=4", "length=... is for texts; name their column, too, as in text=body"),
            ("next_token=yes", "next_token=... is for texts; name their column, too"),
            ("tokenizer=a:b", "tokenizer=... is for texts; name their column, too"),
            ("text=body,tokenizer=words", "unknown tokenizer 'words'"),
        ],
    )
    def test_wrong_options_are_named(self, options: str, said: str, path: Path) -> None:
        label = "" if "next_token" in options else ",label=kind"
        with pytest.raises(InputError) as caught:
            load_dataset(f"table,path={path}{label},split=part,{options}")
        assert said in str(caught.value)

    def test_an_empty_text_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "notes.csv").write_text("body,label\na,0\n,1\n")
        with pytest.raises(InputError, match=r"notes\.csv, line 3, column 'body' is empty"):
            load_dataset(f"table,path={tmp_path / 'notes.csv'},text=body,test_share=0.5")

    @pytest.mark.parametrize(
        ("value", "said"), [(3, "row 1 from 0, column 'body': 3 isn't a text"), (None, "is empty")]
    )
    def test_what_is_no_text_in_a_frame_is_refused(self, value: Any, said: str) -> None:
        frame = pandas.DataFrame({"body": ["a", value], "label": [0, 1]}, dtype=object)
        with pytest.raises(InputError, match=said):
            adabest.from_frame(frame, text="body", test_share=0.5)

    def test_numbers_in_a_parquet_file_are_no_texts(self, tmp_path: Path) -> None:
        pandas.DataFrame({"body": [1, 2], "label": [0, 1]}).to_parquet(tmp_path / "n.parquet")
        with pytest.raises(InputError, match="the column 'body' holds int64; it should hold texts, as text= says"):
            load_dataset(f"table,path={tmp_path / 'n.parquet'},text=body,test_share=0.5")


def test_a_run_with_a_tokenizer_is_resumed_by_a_call_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run_words.py").write_text(
        "from torch import nn\n\n\ndef lengths(text):\n    return [len(word) for word in text.split()]\n\n\n"
        "def reader(shape, classes):\n"
        "    return nn.Sequential(nn.Embedding(9, 2), nn.Flatten(), nn.Linear(6, classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    rows = [f"{'word ' * (number % 3)}end,{number % 2}" for number in range(40)]
    (tmp_path / "notes.csv").write_text("\n".join(["body,label", *rows]))
    data = f"table,path={tmp_path / 'notes.csv'},text=body,length=3,tokenizer=run_words:lengths,test_share=0.2"
    out = tmp_path / "run"
    settings: dict[str, Any] = {"model": "run_words:reader"}
    break_off(out, 5, Interrupted, dataset=data, **settings)
    with pytest.raises(InputError, match="'run_words:lengths' isn't imported: it was named by a file"):
        adabest.resume(out, allow="run_words:reader", show=False)
    resumed = adabest.resume(out, allow=["run_words:reader", "run_words:lengths"], show=False)
    assert isinstance(resumed, adabest.Run)
    assert resumed.status == "finished"
