"""Settings are declared once: all that knows a setting derives it from its declaration."""

import dataclasses
from typing import Annotated, Any

import pytest

from adabest.cli import parser
from adabest.errors import InputError
from adabest.registry import check_options, options_of
from adabest.runs.settings.call_arguments import CALL_ARGUMENTS, RESERVED
from adabest.runs.settings.config import (
    BESIDE_SPECIFICATIONS,
    COMPONENTS,
    ENVIRONMENT_SETTINGS,
    LIMIT_SETTINGS,
    PARTITION_SETTINGS,
    SETTINGS,
    TASK_SETTINGS,
    Config,
)
from adabest.runs.settings.declaration import GROUPS, Identity, Meaning, Range, declared, names_where


@dataclasses.dataclass(frozen=True)
class OneMore(Config):
    """Config with one more setting."""

    temperature: Annotated[
        float, Meaning("training", "How hot it is.", task=True, range=Range(above=0, most=2, subject="a heat is"))
    ] = 1.0


class TestOneMoreSetting:
    """A new setting takes a field of the dataclass, and nothing else."""

    def test_the_command_line_has_it_in_its_group_with_its_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        tyro: Any = pytest.importorskip("tyro")
        reader = parser.reader(parser.fields(declared(OneMore)), "Run.")
        with pytest.raises(SystemExit):
            tyro.cli(reader, args=["--help"])
        shown = capsys.readouterr().out
        training = shown.partition("training options")[2].partition("evaluation options")[0]
        assert "--temperature FLOAT" in training
        assert "How hot it is. (default: 1.0)" in training
        assert tyro.cli(reader, args=["--temperature", "0.5"])["temperature"] == 0.5

    def test_files_are_checked_for_it(self) -> None:
        settings = declared(OneMore)
        assert check_options("a run", {"temperature": 2}, settings, text=False) == {"temperature": 2.0}
        with pytest.raises(InputError, match="temperature should be a number, not 'hot'"):
            check_options("a run", {"temperature": "hot"}, settings, text=False)

    def test_its_range_is_checked_by_its_words(self) -> None:
        within = declared(OneMore)["temperature"].meaning.range
        assert within is not None
        within.check("temperature", 2)
        with pytest.raises(InputError, match=r"^temperature = 0: a heat is above 0 and at most 2$"):
            within.check("temperature", 0)

    def test_lists_of_names_have_it(self) -> None:
        assert "temperature" in names_where(declared(OneMore), lambda meaning: meaning.task)

    def test_a_configuration_holds_and_writes_it(self) -> None:
        hot = OneMore(temperature=1.5)
        assert hot.flat()["temperature"] == 1.5
        assert hot.essence()["temperature"] == 1.5
        assert hot.digest() != OneMore().digest()


class TestDeclaredNames:
    def test_every_field_is_declared_with_group_and_help(self) -> None:
        assert list(SETTINGS) == [f.name for f in dataclasses.fields(Config) if f.name != "hyperparameters"]
        for name, setting in {**SETTINGS, **CALL_ARGUMENTS}.items():
            assert setting.meaning.group in GROUPS, name
            assert setting.meaning.help.endswith("."), name

    def test_types_and_defaults_are_those_of_the_dataclass(self) -> None:
        options = options_of(Config)
        for name, setting in SETTINGS.items():
            assert (setting.type, setting.default) == (options[name].type, options[name].default), name

    def test_what_runs_on_disk_depend_on_is_unchanged(self) -> None:
        """Folders of earlier versions were named and compared by these."""
        assert ENVIRONMENT_SETTINGS == ("data_dir", "tensorboard", "loggers", "backend")
        sizes = ("client_memory", "client_device_memory", "client_disk")
        assert ("clients_in_parallel", *sizes) == LIMIT_SETTINGS
        beside = {name for name, one in SETTINGS.items() if one.meaning.identity is not Identity.RESULT}
        assert beside == {*ENVIRONMENT_SETTINGS, *LIMIT_SETTINGS, "checkpoint_every", "threads", "device"}
        assert COMPONENTS == ("dataset", "algorithm", "model", "task", "loss")
        assert tuple(name for name, one in SETTINGS.items() if one.meaning.size) == sizes

    def test_what_a_specification_leaves_open_decides_no_result_but_precision_and_how_often_is_evaluated(self) -> None:
        deciding = {name for name in BESIDE_SPECIFICATIONS if SETTINGS[name].meaning.identity is Identity.RESULT}
        assert deciding == {"engine", "precision", "evaluate_every"}

    def test_tuning_never_varies_the_partition(self) -> None:
        shared = {"dataset", "data_dir", "seed"}  # which are refused, or no matter, in any sweep
        assert {*PARTITION_SETTINGS} - shared <= {*TASK_SETTINGS}

    def test_no_call_takes_an_argument_that_is_a_setting(self) -> None:
        assert not SETTINGS.keys() & set(RESERVED)


class TestRange:
    @pytest.mark.parametrize(
        ("within", "words"),
        [
            (Range(least=1), "at least 1"),
            (Range(least=0, below=2**63), "at least 0 and below 2⁶³"),
            (Range(above=0, most=1), "above 0 and at most 1"),
        ],
    )
    def test_bounds_are_named(self, within: Range, words: str) -> None:
        assert within.in_words() == words

    def test_bounds_hold(self) -> None:
        assert all(value in Range(least=0, below=1) for value in (0, 0.5))
        assert not any(value in Range(least=0, below=1) for value in (-1, 1, float("nan")))
        assert all(value in Range(above=0, most=1) for value in (0.1, 1))
        assert not any(value in Range(above=0, most=1) for value in (0, 1.1, float("nan")))
