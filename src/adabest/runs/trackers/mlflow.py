"""MLflow: at ``MLFLOW_TRACKING_URI``, else in its local database, or in the run's folder if it has none."""

import importlib
import os
import time
from typing import Any

from adabest.errors import InputError
from adabest.runs.callbacks.base import Callback, Ending, Row, RunView
from adabest.runs.files import folder as files
from adabest.runs.trackers.rows import numbers

_TAG = "adabest.id"
_STATES = {"finished": "FINISHED", "diverged": "FAILED"}


class MLflow(Callback):
    """Sends rows to an MLflow run, as metrics whose step is the round; settings are its parameters."""

    requires = "mlflow"

    def __init__(self, experiment: str = "") -> None:
        """Sets the experiment.

        Args:
            experiment: The MLflow experiment. By default ``MLFLOW_EXPERIMENT_NAME``, else adabest.
        """
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME", "adabest")
        self._client: Any = None
        self._run = ""
        self._known: dict[str, set[int]] = {}

    def start(self, run: RunView) -> None:
        """Opens the MLflow run that has this id as a tag, and sends what it lacks."""
        mlflow: Any = importlib.import_module("mlflow")
        try:
            self._client = mlflow.MlflowClient()
        except mlflow.exceptions.MlflowException as error:
            if "MLFLOW_TRACKING_URI" in os.environ:
                raise InputError(
                    f"{error} Set MLFLOW_TRACKING_URI to a server, or unset it to keep the metrics in the run's folder"
                ) from error
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # the only store of mlflow-skinny without a server
            self._client = mlflow.MlflowClient(tracking_uri=(run.folder / files.MLFLOW).resolve().as_uri())
        self._run = self._open(run)
        self._known = {}
        # MLflow refuses to change a parameter, but data_dir may differ in a resumed run: so only new ones are sent.
        there = self._client.get_run(self._run).data.params
        new = {name: str(value) for name, value in run.config.items() if name not in there}
        self._client.log_batch(self._run, params=[mlflow.entities.Param(name, value) for name, value in new.items()])
        for row in run.rows:
            self.after_evaluation(run, row)

    def after_evaluation(self, run: RunView, metrics: Row) -> None:
        """Sends the metrics of a row that MLflow doesn't have yet; before a resume it may have got some."""
        kind: Any = importlib.import_module("mlflow.entities").Metric
        now, step = int(1000 * time.time()), metrics["round"]
        new = {name: value for name, value in numbers(metrics).items() if step not in self._steps(name)}
        self._client.log_batch(self._run, metrics=[kind(name, value, now, step) for name, value in new.items()])
        for name in new:
            self._known[name].add(step)

    def end(self, run: RunView, ending: Ending) -> None:
        """Closes the run. An interrupted one has MLflow's status KILLED until it is resumed."""
        for name, value in ending.facts().items():
            self._client.set_tag(self._run, name, str(value))
        self._client.set_terminated(self._run, _STATES.get(ending.status, "KILLED"))

    def _open(self, run: RunView) -> str:
        """The id of the MLflow run, which is made if it doesn't exist."""
        experiment = self._client.get_experiment_by_name(self._experiment)
        place = experiment.experiment_id if experiment else self._client.create_experiment(self._experiment)
        for found in self._client.search_runs([place], f"tags.`{_TAG}` = '{run.id}'"):
            self._client.update_run(found.info.run_id, status="RUNNING")
            return str(found.info.run_id)
        tags = {_TAG: run.id, **({"group": run.group} if run.group else {})}
        return str(self._client.create_run(place, run_name=run.name, tags=tags).info.run_id)

    def _steps(self, metric: str) -> set[int]:
        """The rounds for which MLflow has a metric, read once. A value sent twice would be stored twice."""
        if metric not in self._known:
            history = self._client.get_metric_history(self._run, metric)
            self._known[metric] = {point.step for point in history}
        return self._known[metric]
