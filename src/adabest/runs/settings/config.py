"""Every setting of a run, each declared once; the same names in a TOML file, on the command line and in Python.

A new setting is a new field of ``Config``, and nothing else: the lists below, the options of commands, Python's
keywords, checks, help and docs are derived from it.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from adabest.runs.settings.declaration import Identity, Meaning, Range, declared, names_where

if TYPE_CHECKING:
    import torch

_COUNT = Range(least=1)
_SEED = Range(least=0, below=2**63)


@dataclasses.dataclass(frozen=True)
class Config:
    """The configuration of a run: everything that its result depends on, and how it is executed.

    ``hyperparameters`` holds the algorithm's own settings, by name.
    """

    dataset: Annotated[
        str,
        Meaning(
            "data",
            "Data set: digits, mnist, emnist-l, emnist-letters, cifar10, cifar100, a path to an .npz file, or "
            "module:function, with options as in table,path=mine.csv,test_share=0.2 (CSV or Parquet), "
            "images,path=pictures,test_share=0.2, npz,path=mine.npz,labels=map, leaf,path=femnist, "
            "huggingface,path=folder,client=writer or synthetic,samples=1000000,shape=3x32x32.",
            instead="all runs share their data",
            partition=True,
            names=True,
            objects=("adabest.data.dataset:Dataset",),
            layers=True,
        ),
    ] = "digits"
    data_dir: Annotated[
        str | None,
        Meaning(
            "data",
            "Folder of the official data files. By default $ADABEST_DATA, or the platform's cache folder.",
            identity=Identity.ENVIRONMENT,
            partition=True,
            beside_specification=True,
        ),
    ] = None
    algorithm: Annotated[
        str,
        Meaning(
            "algorithm",
            "Algorithm: fedavg, fedprox, scaffold, scaffold-m, scaffold-gradient, feddyn, adabest, another that "
            "`adabest algorithms` lists, or module:Class.",
            instead="`adabest compare` takes several",
            names=True,
            objects=("adabest.algorithms.base:Algorithm",),
        ),
    ] = "adabest"
    model: Annotated[
        str | None,
        Meaning(
            "training",
            "Model: logistic, mlp, cnn, resnet, or module:function, with options as in mlp,hidden=100x100. By default "
            "the data set's own.",
            names=True,
            objects=("torch.nn:Module", "adabest.models.factory:Factory"),
            layers=True,
        ),
    ] = None
    task: Annotated[
        str,
        Meaning(
            "data",
            "What models learn, and are judged by: classification, multi-label, regression, next-token, segmentation, "
            "or module:Objective.",
            task=True,
            instead="all runs share it",
            partition=True,
            names=True,
            objects=("adabest.tasks.objectives.base:Objective",),
            added_later=True,
            layers=True,
        ),
    ] = "classification"
    loss: Annotated[
        str | None,
        Meaning(
            "training",
            "Loss: cross-entropy, or module:function of outputs and targets. By default the task's own.",
            names=True,
            objects=("adabest.tasks.classification:Loss",),
            layers=True,
        ),
    ] = None
    batch_norm: Annotated[
        Literal["refuse", "group"],
        Meaning(
            "training",
            "Models with BatchNorm, whose statistics would leak between clients: refuse them, or put GroupNorm in its "
            "place (group): groups of 8 channels; one group for BatchNorm1d and where 8 doesn't divide the channels.",
            task=True,
            added_later=True,
            layers=True,
        ),
    ] = "refuse"
    clients: Annotated[
        int | None,
        Meaning(
            "clients",
            "Number of clients that train. By default 100, or all there are where the data set comes split by client.",
            task=True,
            partition=True,
        ),
    ] = None
    validation_clients: Annotated[
        int | None,
        Meaning(
            "clients",
            "Number of clients that are held out for validation, beside those that train. By default a tenth of them, "
            "rounded up.",
            task=True,
            partition=True,
        ),
    ] = None
    partition: Annotated[
        str | None,
        Meaning(
            "clients",
            "How samples are dealt to clients: dirichlet, dirichlet-legacy, shards, iid, module:function, or natural "
            "for a data set that comes split by client. By default natural for such a data set, else dirichlet, or iid "
            "where samples don't have one label each.",
            task=True,
            partition=True,
            names=True,
        ),
    ] = None
    alpha: Annotated[
        float,
        Meaning(
            "clients", "Concentration of the Dirichlet label skew; smaller is more skewed.", task=True, partition=True
        ),
    ] = 0.3
    shards: Annotated[
        int,
        Meaning(
            "clients",
            "Shards of a client with partition shards; a shard is a run of samples sorted by label.",
            task=True,
            partition=True,
        ),
    ] = 2
    unbalance: Annotated[
        float,
        Meaning(
            "clients", "Spread (lognormal σ) of the clients' sizes; 0 makes them equal.", task=True, partition=True
        ),
    ] = 0.0
    local_test: Annotated[
        float | None,
        Meaning(
            "clients",
            "Share of each training client's samples that it doesn't train on, as in 0.2: on them the model that is "
            "told of and the client's own latest model are judged, client by client. By default there is none.",
            task=True,
            partition=True,
            range=Range(above=0, below=1, subject="a share that is held out is"),
        ),
    ] = None
    participation: Annotated[
        float, Meaning("clients", "Share of the training clients present that takes part in a round.")
    ] = 0.1
    sampler: Annotated[
        str,
        Meaning(
            "clients",
            "How the clients of a round are drawn: uniform (a fixed number of them), bernoulli (each with its own "
            "coin), weighted (a fixed number, by their numbers of samples) or round-robin.",
            names=True,
        ),
    ] = "uniform"
    churn: Annotated[
        float,
        Meaning(
            "clients",
            "Probability with which a present client leaves, and an absent one comes back, before each round but the "
            "first.",
        ),
    ] = 0.0
    schedule: Annotated[
        tuple[str, ...],
        Meaning(
            "clients",
            "Clients that leave or join at given rounds, as in 100:leave:0-49 200:join:0-9,30; training clients count "
            "from 0.",
        ),
    ] = ()
    rounds: Annotated[int, Meaning("training", "Number of rounds.", task=True, range=_COUNT)] = 200
    epochs: Annotated[int, Meaning("training", "Passes of a client over its samples in a round.", range=_COUNT)] = 5
    batch_size: Annotated[
        int | None,
        Meaning("training", "Samples in a local step. By default the data set's own.", layers=True, range=_COUNT),
    ] = None
    batching: Annotated[
        Literal["top-up", "short", "replacement"],
        Meaning(
            "training",
            "How an epoch's batches are made. top-up: all samples in a random order, and the last batch filled with "
            "random ones; short: the same order, and a last batch of what is left; replacement: every sample drawn "
            "with replacement.",
            added_later=True,
            layers=True,
        ),
    ] = "top-up"
    learning_rate: Annotated[float, Meaning("training", "Local learning rate in the first round.")] = 0.1
    learning_rate_decay: Annotated[
        float, Meaning("training", "Factor by which the learning rate is multiplied from round to round.")
    ] = 0.998
    weight_decay: Annotated[float | None, Meaning("training", "Local weight decay. By default the data set's own.")] = (
        None
    )
    clip: Annotated[float, Meaning("training", "Largest norm of the corrected gradient; 0 for none.")] = 10.0
    augmentation: Annotated[
        str | None,
        Meaning(
            "training",
            "Augmentation of training images: none or flip-crop. By default the data set's own.",
            names=True,
            layers=True,
        ),
    ] = None
    local_steps: Annotated[
        str,
        Meaning(
            "training",
            "Steps of a client in a round: own, its own number, mean, for every client the number of a client of mean "
            "size, or uniform:1:5, a number from 1 to 5 that is drawn for each client and round.",
        ),
    ] = "own"
    local_optimizer: Annotated[
        str,
        Meaning(
            "training",
            "Optimiser of local training: sgd or adam, with options as in adam,beta1=0.9,beta2=0.999,eps=1e-8. Its "
            "state begins with zero in every round.",
            added_later=True,
        ),
    ] = "sgd"
    bad_replies: Annotated[
        Literal["quarantine", "stop"],
        Meaning(
            "training",
            "What becomes of a bad reply, one that isn't finite for instance: quarantine leaves it out and notes it, "
            "stop ends the run.",
            added_later=True,
        ),
    ] = "quarantine"
    reply_limit: Annotated[
        str,
        Meaning(
            "training",
            "Largest norm of a vector in a reply, of a model's difference from the one that was sent: none, a number "
            "such as 25, or a multiple of the running median such as 10x. A reply beyond it is a bad one.",
            added_later=True,
        ),
    ] = "none"
    state_commit: Annotated[
        Literal["sent", "confirmed"],
        Meaning(
            "training",
            "When a client's new state counts: once its reply is sent, as in the paper, or once it is confirmed that "
            "the reply was accepted; until then a client keeps the old one, too.",
            added_later=True,
        ),
    ] = "sent"
    server_rate: Annotated[
        float, Meaning("algorithm", "How far the cloud model moves towards the algorithm's, η_g.")
    ] = 1.0
    scored_clients: Annotated[
        Literal["seen", "all"],
        Meaning(
            "evaluation",
            "Clients whose latest models the scored model averages: those seen so far, or all, where an unseen one "
            "counts as the initial model.",
        ),
    ] = "seen"
    score: Annotated[
        Literal["scored", "aggregate", "cloud", "averaged"],
        Meaning(
            "evaluation",
            "Model that tables, targets, early stopping and tuning speak of: the scored one, as in the paper, the "
            "aggregate, the cloud model, or the averaged one of --average-from.",
            task=True,
            added_later=True,
        ),
    ] = "scored"
    metrics: Annotated[
        tuple[str, ...],
        Meaning(
            "evaluation",
            "Metrics beside the task's: names of scikit-learn's scores, such as f1_macro or roc_auc_ovr, or "
            "module:function of (outputs, targets).",
            names=True,
            elements=("adabest.tasks.own_metrics:Function",),
            added_later=True,
        ),
    ] = ()
    average_from: Annotated[
        float | None,
        Meaning(
            "evaluation",
            "Part of the run after which the aggregate models are averaged over rounds into one more model, as in "
            "0.5. By default there is no such model.",
            range=Range(least=0, below=1, subject="a part of the run is"),
        ),
    ] = None
    seed: Annotated[
        int, Meaning("training", "Key of every random draw.", instead="pass `seeds`", partition=True, range=_SEED)
    ] = 0
    partition_seed: Annotated[
        int | None,
        Meaning(
            "clients",
            "Key of the partition's random draws alone. By default the seed.",
            task=True,
            partition=True,
            range=_SEED,
        ),
    ] = None
    evaluate_every: Annotated[
        int,
        Meaning(
            "evaluation",
            "Rounds between two evaluations; the last round is always evaluated.",
            task=True,
            beside_specification=True,
            range=_COUNT,
        ),
    ] = 10
    stop_at: Annotated[
        float | None,
        Meaning(
            "evaluation",
            "Accuracy, or value of the task's first metric, of the model that --score names, or of the aggregate where "
            "there is no scored one, on the test set at which the run ends early.",
            task=True,
        ),
    ] = None
    stop_after: Annotated[
        int | None,
        Meaning(
            "evaluation",
            "Rounds without a new best accuracy, or value of the task's first metric, on validation clients after "
            "which the run ends early. Without validation clients the test set counts.",
            task=True,
            range=_COUNT,
        ),
    ] = None
    checkpoint_every: Annotated[
        int | None,
        Meaning(
            "output",
            "Rounds between two checkpoints, more where the disk is too slow for that; 0 for a checkpoint only when "
            "interrupted. By default as often as takes at most 5 % of the time.",
            identity=Identity.EXECUTION,
            beside_specification=True,
            range=Range(least=0),
        ),
    ] = None
    tensorboard: Annotated[
        bool, Meaning("output", "Write TensorBoard event files into the run's folder.", identity=Identity.ENVIRONMENT)
    ] = False
    loggers: Annotated[
        tuple[str, ...],
        Meaning(
            "output",
            "Trackers that get every metrics row: wandb, mlflow, trackio, tensorboard, or module:Class.",
            identity=Identity.ENVIRONMENT,
            names=True,
        ),
    ] = ()
    callbacks: Annotated[
        tuple[str, ...],
        Meaning(
            "output",
            "Callbacks of your own that see every round and may end the run early: module:Class, with options as in "
            "my_module:Patience,most=3.",
            names=True,
            added_later=True,
            instead="all runs share their callbacks",
            elements=("adabest.runs.callbacks.base:Callback",),
        ),
    ] = ()
    engine: Annotated[
        Literal["batched", "reference"],
        Meaning(
            "machine",
            "How rounds are executed: batched, clients side by side, or reference, one after another.",
            instead="all runs share it",
            beside_specification=True,
        ),
    ] = "batched"
    device: Annotated[
        str, Meaning("machine", "Device: cpu, cuda or cuda:N.", identity=Identity.EXECUTION, beside_specification=True)
    ] = "cpu"
    precision: Annotated[
        Literal["float32", "float64", "tf32", "bf16"] | None,
        Meaning(
            "machine",
            "Number format of models and states, float32 or float64. With bf16, activations and products of local "
            "training are in bfloat16, and all sums, models and states in float32. With tf32, products are made by a "
            "GPU's matrix units. By default bf16 for the batched engine on a GPU, and float32 elsewhere.",
            instead="all runs share it",
            beside_specification=True,
            layers=True,
        ),
    ] = None
    backend: Annotated[
        Literal["gloo", "nccl"] | None,
        Meaning(
            "machine",
            "How vectors on GPUs travel between the processes of a torchrun job: nccl, or gloo through the machines' "
            "memory. By default nccl.",
            identity=Identity.ENVIRONMENT,
            beside_specification=True,
        ),
    ] = None
    clients_in_parallel: Annotated[
        int | None,
        Meaning(
            "machine",
            "How many clients train at a time at most. By default as many as fit into memory.",
            identity=Identity.LIMIT,
            beside_specification=True,
            range=_COUNT,
        ),
    ] = None
    threads: Annotated[
        int | None,
        Meaning(
            "machine",
            "CPU threads: this many clients train side by side, and torch uses as many. By default one client on each "
            "core, and torch's own number of threads, or one thread for models of under 100,000 parameters.",
            identity=Identity.EXECUTION,
            beside_specification=True,
            range=_COUNT,
        ),
    ] = None
    client_memory: Annotated[
        str | None,
        Meaning(
            "machine",
            "Memory for what clients keep between rounds, as in 6GiB. By default a quarter of the machine's memory. "
            "What doesn't fit goes to a file in the run's folder.",
            identity=Identity.LIMIT,
            beside_specification=True,
            size=True,
        ),
    ] = None
    client_device_memory: Annotated[
        str | None,
        Meaning(
            "machine",
            "GPU memory for what clients keep between rounds; it is filled first. By default a quarter of the GPU's "
            "memory.",
            identity=Identity.LIMIT,
            beside_specification=True,
            size=True,
        ),
    ] = None
    client_disk: Annotated[
        str | None,
        Meaning(
            "machine",
            "Largest size of the file for what clients keep between rounds. By default what is free on the disk.",
            identity=Identity.LIMIT,
            beside_specification=True,
            size=True,
        ),
    ] = None
    hyperparameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def dtype(self) -> "torch.dtype":
        """The type of models and states."""
        from adabest.runs.settings.precisions import PRECISIONS  # torch takes seconds, which help needn't wait for

        return PRECISIONS[self.precision or "float32"]

    def runs_kernels(self) -> bool:
        """Whether clients are trained by the batched engine on a GPU."""
        return self.engine == "batched" and self.device.startswith("cuda")

    def usual_precision(self) -> Literal["bf16", "float32"]:
        """The precision where none was given."""
        return "bf16" if self.runs_kernels() else "float32"

    def flat(self) -> dict[str, Any]:
        """All settings by name, the algorithm's own among them, without those that are left to a default."""
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "hyperparameters"}
        settings |= self.hyperparameters
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in settings.items()
            if value is not None
        }

    def essence(self) -> dict[str, Any]:
        """The settings that the result depends on, by name."""
        return {
            name: value
            for name, value in self.flat().items()
            if name not in _BESIDE_RESULT and not (name in _ADDED_LATER and value == _DEFAULTS[name])
        }

    def trackers(self) -> list[str]:
        """The loggers that watch the run, each once."""
        return list(dict.fromkeys([*self.loggers, *(["tensorboard"] if self.tensorboard else [])]))

    def digest(self) -> str:
        """A short name of everything that the result depends on."""
        return hashlib.sha256(json.dumps(self.essence(), sort_keys=True).encode()).hexdigest()[:8]


SETTINGS = declared(Config)
ENVIRONMENT_SETTINGS = names_where(SETTINGS, lambda meaning: meaning.identity is Identity.ENVIRONMENT)
LIMIT_SETTINGS = names_where(SETTINGS, lambda meaning: meaning.identity is Identity.LIMIT)
PARTITION_SETTINGS = names_where(SETTINGS, lambda meaning: meaning.partition)
LAYER_SETTINGS = names_where(SETTINGS, lambda meaning: meaning.layers)
TASK_SETTINGS = names_where(SETTINGS, lambda meaning: meaning.task)
BESIDE_SPECIFICATIONS = names_where(SETTINGS, lambda meaning: meaning.beside_specification)
COMPONENTS = names_where(SETTINGS, lambda meaning: meaning.objects)
_ADDED_LATER = names_where(SETTINGS, lambda meaning: meaning.added_later)
_DEFAULTS = {name: list(o.default) if isinstance(o.default, tuple) else o.default for name, o in SETTINGS.items()}
_BESIDE_RESULT = names_where(SETTINGS, lambda meaning: meaning.identity is not Identity.RESULT)
