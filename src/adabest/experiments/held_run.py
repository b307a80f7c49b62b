"""A run as users hold it: a stored run with its curves, its frame, its partition, and the objects it was given."""

import functools
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from adabest.errors import InputError
from adabest.registry import naming
from adabest.report.entries import told_metric
from adabest.report.frame import as_frame
from adabest.report.table import data_words, runs_table
from adabest.runs.model_source import take_model
from adabest.runs.settings.config import PARTITION_SETTINGS
from adabest.runs.settings.placeholders import is_object_name
from adabest.runs.settings.resolution import Components, resolve
from adabest.runs.stored_run import Run as StoredRun
from adabest.runs.stored_run import read_run as read_stored

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from adabest.experiments.partition import CutPartition


@dataclass(frozen=True, repr=False)
class Run(StoredRun):
    """A run, as read from its folder.

    Attributes:
        folder: The folder.
        config: Its complete configuration.
        status: ``running``, ``interrupted``, ``killed``, ``finished`` or ``diverged``.
        round: The last round if it is finished, the last checkpointed one if not, or the one it diverged in.
        reason: Why it diverged, or ended before its last round, if it did.
        measured: The file of its metrics, read on first use.
        identity: Fingerprints and the partition's statistics.
        environment: Versions, hardware, the commit and the command it was begun with.
    """

    # What the call that made the run was given: Python objects can't be found again by their names.
    _components: Components | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        value = self.final.get(told_metric(self))
        scored = "" if value is None else f", {self.metric.words} {self.metric.shown(value)}"
        what = f"{self.config.algorithm} on {data_words(self.config.dataset)}"
        return f"Run({str(self.folder)!r}: {what}, {self.status}, round {self.round}/{self.config.rounds}{scored})"

    def _repr_html_(self) -> str:
        """For notebooks: the run as a line of a table."""
        return runs_table([self]).html()

    @functools.cached_property
    def partition(self) -> "CutPartition":
        """Who has which samples. Its ``clients`` tell the samples of a client, ``clients.of(0)``, and who trains.

        Raises:
            InputError: If the data set can't be found again, or has changed since the run was made.
        """
        from adabest.experiments.partition import deal  # imports Matplotlib

        config, components = self.config, self._components
        if components is None:
            if is_object_name(config.dataset):
                raise InputError(
                    f"the data set of {self.folder} was a Python object, which can't be found again; "
                    "adabest.partition(dataset=..., clients=...) deals it as the run did"
                )
            settings = {name: getattr(config, name) for name in PARTITION_SETTINGS}
            with naming(*self._named.names, trust=self._named.everything):
                config, components = resolve(settings)
        with naming(*self._named.names, config.partition, trust=self._named.everything):
            dealt = deal(config, components)
        if dealt.clients.fingerprint != self._of_identity("partition")["fingerprint"]:
            raise InputError(
                f"the data set {config.dataset} has changed since {self.folder} was made, and gives another partition; "
                "bring back the data that the run was made of"
            )
        return dealt

    def plot(self, title: str | None = None) -> "Figure":
        """Accuracy, or the task's first metric, and ‖θ‖ over rounds, as a figure of Matplotlib, which notebooks show.

        It is that of the model which tables speak of (``score``).

        Args:
            title: The title. By default the data set, the clients and the seed.
        """
        from adabest.experiments.run_group import title_of
        from adabest.report.figure import comparison_figure  # imports Matplotlib

        return comparison_figure({self.config.algorithm: self}, title_of([self]) if title is None else title)

    def to_pandas(self) -> Any:
        """The metrics as a ``pandas.DataFrame``, one row per evaluated round.

        Raises:
            InputError: If pandas isn't installed.
        """
        return as_frame(self.metrics)

    def per_client(self) -> Any:
        """The clients of a finished run with ``local_test``, one row each, as a ``pandas.DataFrame``.

        Columns are ``client``, ``samples`` that it trained on, ``held_out`` samples that it was tested with, and each
        metric of the model told of (``global_accuracy``) and of the client's own latest model (``own_accuracy``), which
        is missing where it never took part.

        Raises:
            InputError: If the run has no such results, or pandas isn't installed.
        """
        columns = self.local_results().items()
        rows = {name: [math.nan if one is None else one for one in column] for name, column in columns}
        return as_frame(rows, "per_client")

    def load_model(self, which: str = "scored", module: nn.Module | None = None) -> nn.Module:
        """A model of a finished run.

        Args:
            which: ``scored``, ``aggregate``, ``cloud`` or, for a run with ``average_from``, ``averaged``.
            module: A module to load into, for runs whose model was a Python object. The run that ``adabest.run``
                returns needs none.

        Raises:
            InputError: If the run isn't finished, or the model can't be rebuilt: then its name, if it is one of the
                form ``module:attribute``, must be allowed where the run is loaded.
        """
        if module is None and self._components is not None and is_object_name(str(self.config.model)):
            self._tensors(which)  # refuses a run without such a model before one is built
            module = take_model(self.config, self._components)
        return super().load_model(which, module)


def read_run(path: str | Path, components: Components | None = None) -> Run:
    """Reads a run.

    Args:
        path: The run's folder.
        components: The objects that it was made of, if it was made just now.

    Raises:
        InputError: If there is no run.
    """
    stored = read_stored(path)
    return Run(**{part.name: getattr(stored, part.name) for part in fields(stored)}, _components=components)
