"""Tables in CSV and Parquet files: which columns are what, and what is said about those that can't be used."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch

import adabest
from adabest.data import table as table_module
from adabest.data.loading import findable, load_dataset
from adabest.errors import InputError
from adabest.report.figure import partition_figure

ROWS = """age,height,who,kind,part
1,0.5,b,cat,train
2,1.5,a,dog,train
3,-2.5,b,ant,test
4,1e1,c,ant,train
"""
COLUMNS = "label=kind,client=who,split=part"


def write(folder: Path, text: str | bytes, name: str = "pets.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(folder: Path, text: str | bytes, options: str = "test_share=0.5", name: str = "pets.csv") -> str:
    """The message about a file, without its path, which every message begins with."""
    path = write(folder, text, name)
    with pytest.raises(InputError) as caught:
        load_dataset(f"table,path={path},{options}")
    message = str(caught.value)
    assert message.startswith(str(path))
    return message.removeprefix(str(path))


def test_columns_become_inputs_labels_clients_and_splits(tmp_path: Path) -> None:
    data = load_dataset(f"table,path={write(tmp_path, ROWS)},{COLUMNS}")
    assert data.name == "pets"
    assert data.names == ("ant", "cat", "dog"), "texts in sorted order"
    assert data.classes == 3
    assert data.x_train.dtype == torch.float32
    assert data.x_train[:].tolist() == [[1, 0.5], [2, 1.5], [4, 10]]
    assert data.y_train.tolist() == [1, 2, 0]
    assert data.x_test.tolist() == [[3, -2.5]]
    assert data.y_test.tolist() == [0]
    assert data.clients is not None
    assert data.clients.tolist() == [1, 0, 2]


def test_parquet_holds_the_same(tmp_path: Path) -> None:
    columns = {"age": [1, 2, 3, 4], "height": [0.5, 1.5, -2.5, 10], "who": [*"babc"]}
    columns |= {"kind": ["cat", "dog", "ant", "ant"], "part": ["train", "train", "test", "train"]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "pets.parquet")
    stored = load_dataset(f"table,path={tmp_path / 'pets.parquet'},{COLUMNS}")
    written = load_dataset(f"table,path={write(tmp_path, ROWS)},{COLUMNS}")
    assert stored.fingerprint() == written.fingerprint()
    assert stored.names == written.names


def test_columns_are_chosen_or_dropped(tmp_path: Path) -> None:
    path = write(tmp_path, ROWS)
    chosen = load_dataset(f"table,path={path},label=kind,features=height+age,test_share=0.25")
    assert chosen.input_shape == (2,)
    assert [1.5, 2.0] in [*chosen.x_train[:].tolist(), *chosen.x_test.tolist()]
    assert chosen.clients is None
    dropped = load_dataset(f"table,path={path},label=kind,drop=who+part+age,test_share=0.25")
    assert dropped.input_shape == (1,)


def test_test_rows_may_be_a_file_of_their_own(tmp_path: Path) -> None:
    first = write(tmp_path, "a,b,label\n1,2,0\n3,4,1\n")
    second = write(tmp_path, "label,extra,b,a\n1,x,6,5\n", "later.csv")
    data = load_dataset(f"table,path={first},test={second}")
    assert data.x_test.tolist() == [[5, 6]], "columns are told by their names"
    assert data.y_test.tolist() == [1]
    assert data.names == (), "labels that count have no names"
    other = write(tmp_path, "a,c,label\n1,2,0\n", "c.csv")
    with pytest.raises(InputError, match=r"later\.csv has no column 'c' for features=\.\.\.; .*Known: a, b, extra"):
        load_dataset(f"table,path={other},test={second}")


def test_a_share_is_put_aside_class_by_class_always_the_same(tmp_path: Path) -> None:
    path = write(tmp_path, "x,label\n" + "".join(f"{number},{number % 2}\n" for number in range(100)))
    data = load_dataset(f"table,path={path},test_share=0.2")
    assert data.y_test.bincount().tolist() == [10, 10]
    assert data.fingerprint() == load_dataset(f"table,path={path},test_share=0.2").fingerprint()


def test_columns_are_standardised_by_the_rows_to_train_with(tmp_path: Path) -> None:
    path = write(tmp_path, "x,same,label,part\n1,7,0,train\n3,7,1,train\n6,7,1,test\n")
    data = load_dataset(f"table,path={path},split=part,standardise=yes")
    assert data.x_train[:].tolist() == [[-1, 0], [1, 0]]
    assert data.x_test.tolist() == [[4, 0]], "(6 - 2) / 1"


def test_labels_with_gaps_are_mapped_when_asked(tmp_path: Path) -> None:
    text = "x,label\n" + "".join(f"{number},{label}\n" for number, label in enumerate([10, 2, 5, 10, 2, 5]))
    said = refused(tmp_path, text)
    assert said == (
        ": the labels in column 'label' are 2, 5, 10, without 0; they should count the classes from 0 without gaps. "
        "labels=map maps them, in their order, labels=numbers takes them for quantities; if a class really has no row, "
        "say how many there are, as in classes=11"
    )
    data = load_dataset(f"table,path={tmp_path / 'pets.csv'},test_share=0.5,labels=map")
    assert data.names == ("2", "5", "10"), "numbers in their own order"
    assert data.classes == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", " is empty; its first line should name the columns"),
        ("\n\n", " is empty; its first line"),
        ("x,label\n", " has no rows below its header"),
        ("x,lable\n1,0\n", " has no column 'label' for label=...; did you mean 'lable'? Known: lable, x"),
        ("label\n1\n", " has no column left for inputs beside label"),
        ("x,x,label\n1,2,0\n", " has several columns called 'x'"),
        (",x,label\n0,2,0\n", ": column 1 has no name, so it would be an input by mistake (pandas"),
        ("x;label\n1;0\n", ": its first line, 'x;label', has one column by this separator; try separator=semicolon"),
        ("x,label\n1,0\n\ntall,1\n", ", line 4, column 'x': 'tall' isn't a number"),
        ("x,label\n1_000,0\n2,1\n", ", line 2, column 'x': '1_000' isn't a number"),
        (
            "x,label\n1,0\n ,1\n",
            ", line 3, column 'x' is empty; fill it in, leave the row out, or leave the column out by drop=x",
        ),
        ("x,label\n1,0\n2,\n", ", line 3, column 'label' is empty; fill it in, or leave the row out"),
        ("x,label\n1,0\n2\n", ", line 3 has 1 cells, but the header has 2 columns"),
        ("x,label\n1,0\n2,1,5\n", ", line 3 has 3 cells, but the header has 2 columns"),
        ("x,label\n1,0\nnan,1\n", ", line 3, column 'x': nan isn't a finite number"),
        ("x,label\n1,0\n1e300,1\n", ", line 3, column 'x': 1e+300 isn't a finite number of float32"),
        ("x,label\n1,0\n2,cat\n", ", line 3, column 'label': the label 'cat' isn't a whole number, as others are"),
        ("x,label\n1,0.25\n2,1.5\n", ", line 2, column 'label': the label '0.25' isn't a whole number; labels name"),
        ("x,label\n1,0\n2,-1\n", ": the labels in column 'label' are -1, 0, without 1"),
        ('x,label\n"1,0\n', ", line 2 can't be read as CSV: unexpected end of data"),
        (f"x,label\n{'9' * 200_000},0\n", ", line 2 can't be read as CSV: field larger than field limit"),
        (b"x,label\n\xff,0\n", " isn't text in UTF-8"),
        (b"x,label\n\0,0\n", ", line 2, column 'x': '\\x00' isn't a number"),
        ("x,label\n__import__('os'),0\n", ", line 2, column 'x': \"__import__('os')\" isn't a number"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert refused(tmp_path, text).startswith(said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("test_share=0.5,client=whom", " has no column 'whom' for client=...; did you mean 'who'?"),
        ("test_share=0.5,client=kind", ": the column 'kind' is named twice, by label= and by client="),
        ("split=who,drop=part", ", line 2, column 'who': 'b' should be train or test"),
        ("test_share=1.5,drop=who+part", ": test_share = 1.5 of 4 rows leaves none"),
        ("test_share=0.01,drop=who+part", ": test_share = 0.01 of 4 rows leaves none"),
        ("test_share=nan,drop=who+part", ": test_share = nan of 4 rows leaves none"),
        ("test_share=0.5,drop=part", ", line 2, column 'who': 'b' isn't a number, which inputs should be; leave the"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: str, said: str) -> None:
    assert refused(tmp_path, ROWS, f"label=kind,{options}").startswith(said)


def test_how_to_test_is_someones_decision(tmp_path: Path) -> None:
    path = write(tmp_path, ROWS)
    with pytest.raises(InputError, match=r"one way to tell its test rows, not none: test=FILE, split=COLUMN"):
        load_dataset(f"table,path={path}")
    with pytest.raises(InputError, match=r"not split and test_share"):
        load_dataset(f"table,path={path},split=part,test_share=0.1")


def test_files_that_are_no_tables(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.csv doesn't exist"):
        load_dataset(f"table,path={tmp_path / 'nothing.csv'},test_share=0.5")
    with pytest.raises(InputError, match=r"should end in \.csv, \.tsv, \.txt, \.parquet"):
        load_dataset(f"table,path={write(tmp_path, ROWS, 'pets.xlsx')},test_share=0.5")
    assert " can't be read as Parquet" in refused(tmp_path, "PAR1 and no more", name="pets.parquet")


def test_tabs_semicolons_and_marks_of_byte_order(tmp_path: Path) -> None:
    plain = load_dataset(f"table,path={write(tmp_path, ROWS)},{COLUMNS}").fingerprint()
    tabs = write(tmp_path, "\ufeff" + ROWS.replace(",", "\t").replace("\n", "\r\n"), "pets.tsv")
    assert load_dataset(f"table,path={tabs},{COLUMNS}").fingerprint() == plain
    semicolons = write(tmp_path, ROWS.replace(",", ";"), "german.csv")
    assert load_dataset(f"table,path={semicolons},{COLUMNS},separator=semicolon").fingerprint() == plain


def test_a_label_that_only_the_test_file_has_is_named(tmp_path: Path) -> None:
    train = write(tmp_path, "x,label\n1,cat\n2,dog\n")
    test = write(tmp_path, "x,label\n1,cat\n2,dgo\n", "later.csv")
    with pytest.warns(UserWarning, match=r"later\.csv has the label 'dgo', which no training sample has"):
        load_dataset(f"table,path={train},test={test}")
    both = write(tmp_path, ROWS.replace("4,1e1,c,ant", "4,1e1,c,cat"), "both.csv")
    with pytest.warns(UserWarning, match=r"both\.csv, where column 'part' says test, has the label 'ant'"):
        load_dataset(f"table,path={both},{COLUMNS}")


def test_texts_in_one_file_and_numbers_in_the_other_are_told(tmp_path: Path) -> None:
    words, numbers = write(tmp_path, "x,label\n1,cat\n2,dog\n"), write(tmp_path, "x,label\n1,0\n2,1\n", "later.csv")
    for one, other in ((words, numbers), (numbers, words)):
        with pytest.raises(InputError) as caught:
            load_dataset(f"table,path={one},test={other}")
        assert str(caught.value) == (
            f"{words} has texts in column 'label', such as 'cat', but {numbers} numbers, such as '0'; labels of both "
            "should be written alike"
        )


def test_quantities_are_told_even_if_some_are_whole(tmp_path: Path) -> None:
    said = refused(tmp_path, "x,label\n1,0.538\n2,0.25\n3,1\n")
    assert said.startswith(", line 2, column 'label': the label '0.538' isn't a whole number; labels name classes. ")
    assert "labels=numbers takes every value for a quantity" in said


def test_truths_are_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, "x,y,label,s\n1,True,0,train\n2,False,1,test\n")
    data = load_dataset(f"table,path={path},split=s")
    assert [data.x_train[0].tolist(), data.x_test[0].tolist()] == [[1, 1], [2, 0]]


class TestParquet:
    def refused(self, folder: Path, columns: dict[str, Any], **options: Any) -> str:
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / "t.parquet", **options)
        with pytest.raises(InputError) as caught:
            load_dataset(f"table,path={folder / 't.parquet'},test_share=0.5")
        return str(caught.value).removeprefix(str(folder / "t.parquet"))

    def test_columns_of_other_types(self, tmp_path: Path) -> None:
        said = self.refused(tmp_path, {"x": ["a", "b"], "label": [0, 1]})
        assert said.startswith(": the column 'x' holds string, and inputs should be numbers; leave it out by drop=x")
        said = self.refused(tmp_path, {"x": [[1.0], [2.0]], "label": [0, 1]})
        assert said.startswith(": the column 'x' holds list<")
        assert "holds list<" in self.refused(tmp_path, {"x": [1, 2], "label": [[0], [1]]})

    def test_cells_without_a_value(self, tmp_path: Path) -> None:
        assert self.refused(tmp_path, {"x": [1, None], "label": [0, 1]}).startswith(", row 2, column 'x' is empty")
        assert self.refused(tmp_path, {"x": [1, 2], "label": [None, "a"]}).startswith(
            ", row 1, column 'label' is empty; fill it in, or leave the row out"
        )

    def test_no_rows(self, tmp_path: Path) -> None:
        assert "has no rows" in self.refused(tmp_path, {"x": pyarrow.array([], "float32"), "label": [][:0]})

    def test_a_few_bytes_that_stand_for_many_rows(self, tmp_path: Path) -> None:
        zeros = np.zeros(5_000_000, np.int8)
        assert "would grow to 80 MB" in self.refused(tmp_path, {"x": zeros, "label": zeros})

    def test_the_extra_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("adabest.extras.is_installed", lambda package: package != "pyarrow")
        path = write(tmp_path, b"", "t.parquet")
        with pytest.raises(InputError, match=r"t\.parquet, a Parquet file, needs .*adabest\[parquet\]"):
            load_dataset(f"table,path={path},test_share=0.5")

    def test_csv_needs_no_pyarrow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        load_dataset(f"table,path={write(tmp_path, ROWS)},{COLUMNS}")


def test_a_file_beyond_memory_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adabest.machine.total_memory", lambda: 100)
    monkeypatch.setattr(table_module, "_sheet_of_lines", None)
    assert "would need about" in refused(tmp_path, ROWS)


def test_paths_are_found_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert findable("table,path=a.csv,test=b.csv") == f"table,path={tmp_path / 'a.csv'},test={tmp_path / 'b.csv'}"


def test_names_are_one_for_each_class() -> None:
    arrays = torch.zeros(2, 1), torch.tensor([0, 1]), torch.zeros(2, 1), torch.tensor([0, 1])
    assert adabest.Dataset("two", *arrays, classes=2, names=("a", "b")).fingerprint() == (
        adabest.Dataset("two", *arrays, classes=2).fingerprint()
    ), "no result depends on names"
    with pytest.raises(InputError, match="one text for each of the 2 classes"):
        adabest.Dataset("two", *arrays, classes=2, names=("a",))


def test_classes_are_named_in_a_partition(tmp_path: Path) -> None:
    rows = "".join(f"{number},{'$cat$' if number % 2 else 'dog'}\n" for number in range(100))
    path = write(tmp_path, "x,label\n" + rows)
    cut = adabest.partition(dataset=f"table,path={path},test_share=0.2", clients=4, validation_clients=1)
    assert cut.names == ("$cat$", "dog")
    assert "dog" in str(cut.table.rows)
    cut.draw(tmp_path / "figure")
    (axes, _) = partition_figure(cut.clients, names=cut.names).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [r"\$cat\$", "dog"], "no name is a formula"
