"""The settings as keywords of Python calls: editors complete them, and type checkers check them.

Written by ``python -m tools.keywords`` from ``settings/config.py``; change that, and write this anew.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from torch.nn import Module

    from adabest.algorithms.base import Algorithm
    from adabest.data.dataset import Dataset
    from adabest.models.factory import Factory
    from adabest.runs.callbacks.base import Callback
    from adabest.tasks.classification import Loss
    from adabest.tasks.objectives.base import Objective
    from adabest.tasks.own_metrics import Function


class SharedSettings(TypedDict, total=False):
    """The settings of all runs of a comparison."""

    dataset: "str | Dataset"
    """Data set: digits, mnist, emnist-l, emnist-letters, cifar10, cifar100, a path to an .npz file, or module:function,
    with options as in table,path=mine.csv,test_share=0.2 (CSV or Parquet), images,path=pictures,test_share=0.2,
    npz,path=mine.npz,labels=map, leaf,path=femnist, huggingface,path=folder,client=writer or
    synthetic,samples=1000000,shape=3x32x32.
    """

    data_dir: str | None
    """Folder of the official data files. By default $ADABEST_DATA, or the platform's cache folder."""

    model: "str | Module | Factory | None"
    """Model: logistic, mlp, cnn, resnet, or module:function, with options as in mlp,hidden=100x100. By default the data
    set's own.
    """

    task: "str | Objective"
    """What models learn, and are judged by: classification, multi-label, regression, next-token, segmentation, or
    module:Objective.
    """

    loss: "str | Loss | None"
    """Loss: cross-entropy, or module:function of outputs and targets. By default the task's own."""

    batch_norm: Literal["refuse", "group"]
    """Models with BatchNorm, whose statistics would leak between clients: refuse them, or put GroupNorm in its place
    (group): groups of 8 channels; one group for BatchNorm1d and where 8 doesn't divide the channels.
    """

    clients: int | None
    """Number of clients that train. By default 100, or all there are where the data set comes split by client."""

    validation_clients: int | None
    """Number of clients that are held out for validation, beside those that train. By default a tenth of them, rounded
    up.
    """

    partition: str | None
    """How samples are dealt to clients: dirichlet, dirichlet-legacy, shards, iid, module:function, or natural for a
    data set that comes split by client. By default natural for such a data set, else dirichlet, or iid where samples
    don't have one label each.
    """

    alpha: float
    """Concentration of the Dirichlet label skew; smaller is more skewed."""

    shards: int
    """Shards of a client with partition shards; a shard is a run of samples sorted by label."""

    unbalance: float
    """Spread (lognormal σ) of the clients' sizes; 0 makes them equal."""

    local_test: float | None
    """Share of each training client's samples that it doesn't train on, as in 0.2: on them the model that is told of
    and the client's own latest model are judged, client by client. By default there is none.
    """

    participation: float
    """Share of the training clients present that takes part in a round."""

    sampler: str
    """How the clients of a round are drawn: uniform (a fixed number of them), bernoulli (each with its own coin),
    weighted (a fixed number, by their numbers of samples) or round-robin.
    """

    churn: float
    """Probability with which a present client leaves, and an absent one comes back, before each round but the first."""

    schedule: Sequence[str]
    """Clients that leave or join at given rounds, as in 100:leave:0-49 200:join:0-9,30; training clients count from 0.
    """

    rounds: int
    """Number of rounds."""

    epochs: int
    """Passes of a client over its samples in a round."""

    batch_size: int | None
    """Samples in a local step. By default the data set's own."""

    batching: Literal["top-up", "short", "replacement"]
    """How an epoch's batches are made. top-up: all samples in a random order, and the last batch filled with random
    ones; short: the same order, and a last batch of what is left; replacement: every sample drawn with replacement.
    """

    learning_rate: float
    """Local learning rate in the first round."""

    learning_rate_decay: float
    """Factor by which the learning rate is multiplied from round to round."""

    weight_decay: float | None
    """Local weight decay. By default the data set's own."""

    clip: float
    """Largest norm of the corrected gradient; 0 for none."""

    augmentation: str | None
    """Augmentation of training images: none or flip-crop. By default the data set's own."""

    local_steps: str
    """Steps of a client in a round: own, its own number, mean, for every client the number of a client of mean size, or
    uniform:1:5, a number from 1 to 5 that is drawn for each client and round.
    """

    local_optimizer: str
    """Optimiser of local training: sgd or adam, with options as in adam,beta1=0.9,beta2=0.999,eps=1e-8. Its state
    begins with zero in every round.
    """

    bad_replies: Literal["quarantine", "stop"]
    """What becomes of a bad reply, one that isn't finite for instance: quarantine leaves it out and notes it, stop ends
    the run.
    """

    reply_limit: str
    """Largest norm of a vector in a reply, of a model's difference from the one that was sent: none, a number such as
    25, or a multiple of the running median such as 10x. A reply beyond it is a bad one.
    """

    state_commit: Literal["sent", "confirmed"]
    """When a client's new state counts: once its reply is sent, as in the paper, or once it is confirmed that the reply
    was accepted; until then a client keeps the old one, too.
    """

    server_rate: float
    """How far the cloud model moves towards the algorithm's, η_g."""

    scored_clients: Literal["seen", "all"]
    """Clients whose latest models the scored model averages: those seen so far, or all, where an unseen one counts as
    the initial model.
    """

    score: Literal["scored", "aggregate", "cloud", "averaged"]
    """Model that tables, targets, early stopping and tuning speak of: the scored one, as in the paper, the aggregate,
    the cloud model, or the averaged one of --average-from.
    """

    metrics: "Sequence[str | Function]"
    """Metrics beside the task's: names of scikit-learn's scores, such as f1_macro or roc_auc_ovr, or module:function of
    (outputs, targets).
    """

    average_from: float | None
    """Part of the run after which the aggregate models are averaged over rounds into one more model, as in 0.5. By
    default there is no such model.
    """

    seed: int
    """Key of every random draw."""

    partition_seed: int | None
    """Key of the partition's random draws alone. By default the seed."""

    evaluate_every: int
    """Rounds between two evaluations; the last round is always evaluated."""

    stop_at: float | None
    """Accuracy, or value of the task's first metric, of the model that --score names, or of the aggregate where there
    is no scored one, on the test set at which the run ends early.
    """

    stop_after: int | None
    """Rounds without a new best accuracy, or value of the task's first metric, on validation clients after which the
    run ends early. Without validation clients the test set counts.
    """

    checkpoint_every: int | None
    """Rounds between two checkpoints, more where the disk is too slow for that; 0 for a checkpoint only when
    interrupted. By default as often as takes at most 5 % of the time.
    """

    tensorboard: bool
    """Write TensorBoard event files into the run's folder."""

    loggers: Sequence[str]
    """Trackers that get every metrics row: wandb, mlflow, trackio, tensorboard, or module:Class."""

    callbacks: "Sequence[str | Callback]"
    """Callbacks of your own that see every round and may end the run early: module:Class, with options as in
    my_module:Patience,most=3.
    """

    engine: Literal["batched", "reference"]
    """How rounds are executed: batched, clients side by side, or reference, one after another."""

    device: str
    """Device: cpu, cuda or cuda:N."""

    precision: Literal["float32", "float64", "tf32", "bf16"] | None
    """Number format of models and states, float32 or float64. With bf16, activations and products of local training are
    in bfloat16, and all sums, models and states in float32. With tf32, products are made by a GPU's matrix units. By
    default bf16 for the batched engine on a GPU, and float32 elsewhere.
    """

    backend: Literal["gloo", "nccl"] | None
    """How vectors on GPUs travel between the processes of a torchrun job: nccl, or gloo through the machines' memory.
    By default nccl.
    """

    clients_in_parallel: int | None
    """How many clients train at a time at most. By default as many as fit into memory."""

    threads: int | None
    """CPU threads: this many clients train side by side, and torch uses as many. By default one client on each core,
    and torch's own number of threads, or one thread for models of under 100,000 parameters.
    """

    client_memory: str | None
    """Memory for what clients keep between rounds, as in 6GiB. By default a quarter of the machine's memory. What
    doesn't fit goes to a file in the run's folder.
    """

    client_device_memory: str | None
    """GPU memory for what clients keep between rounds; it is filled first. By default a quarter of the GPU's memory."""

    client_disk: str | None
    """Largest size of the file for what clients keep between rounds. By default what is free on the disk."""


class Settings(SharedSettings, total=False):
    """The settings of a run."""

    algorithm: "str | Algorithm"
    """Algorithm: fedavg, fedprox, scaffold, scaffold-m, scaffold-gradient, feddyn, adabest, another that `adabest
    algorithms` lists, or module:Class.
    """


class PartitionSettings(TypedDict, total=False):
    """The settings that a partition depends on."""

    dataset: "str | Dataset"
    """Data set: digits, mnist, emnist-l, emnist-letters, cifar10, cifar100, a path to an .npz file, or module:function,
    with options as in table,path=mine.csv,test_share=0.2 (CSV or Parquet), images,path=pictures,test_share=0.2,
    npz,path=mine.npz,labels=map, leaf,path=femnist, huggingface,path=folder,client=writer or
    synthetic,samples=1000000,shape=3x32x32.
    """

    data_dir: str | None
    """Folder of the official data files. By default $ADABEST_DATA, or the platform's cache folder."""

    task: "str | Objective"
    """What models learn, and are judged by: classification, multi-label, regression, next-token, segmentation, or
    module:Objective.
    """

    clients: int | None
    """Number of clients that train. By default 100, or all there are where the data set comes split by client."""

    validation_clients: int | None
    """Number of clients that are held out for validation, beside those that train. By default a tenth of them, rounded
    up.
    """

    partition: str | None
    """How samples are dealt to clients: dirichlet, dirichlet-legacy, shards, iid, module:function, or natural for a
    data set that comes split by client. By default natural for such a data set, else dirichlet, or iid where samples
    don't have one label each.
    """

    alpha: float
    """Concentration of the Dirichlet label skew; smaller is more skewed."""

    shards: int
    """Shards of a client with partition shards; a shard is a run of samples sorted by label."""

    unbalance: float
    """Spread (lognormal σ) of the clients' sizes; 0 makes them equal."""

    local_test: float | None
    """Share of each training client's samples that it doesn't train on, as in 0.2: on them the model that is told of
    and the client's own latest model are judged, client by client. By default there is none.
    """

    seed: int
    """Key of every random draw."""

    partition_seed: int | None
    """Key of the partition's random draws alone. By default the seed."""


class LayerSettings(TypedDict, total=False):
    """The settings on which it depends how a model's layers are computed."""

    dataset: "str | Dataset"
    """Data set: digits, mnist, emnist-l, emnist-letters, cifar10, cifar100, a path to an .npz file, or module:function,
    with options as in table,path=mine.csv,test_share=0.2 (CSV or Parquet), images,path=pictures,test_share=0.2,
    npz,path=mine.npz,labels=map, leaf,path=femnist, huggingface,path=folder,client=writer or
    synthetic,samples=1000000,shape=3x32x32.
    """

    model: "str | Module | Factory | None"
    """Model: logistic, mlp, cnn, resnet, or module:function, with options as in mlp,hidden=100x100. By default the data
    set's own.
    """

    task: "str | Objective"
    """What models learn, and are judged by: classification, multi-label, regression, next-token, segmentation, or
    module:Objective.
    """

    loss: "str | Loss | None"
    """Loss: cross-entropy, or module:function of outputs and targets. By default the task's own."""

    batch_norm: Literal["refuse", "group"]
    """Models with BatchNorm, whose statistics would leak between clients: refuse them, or put GroupNorm in its place
    (group): groups of 8 channels; one group for BatchNorm1d and where 8 doesn't divide the channels.
    """

    batch_size: int | None
    """Samples in a local step. By default the data set's own."""

    batching: Literal["top-up", "short", "replacement"]
    """How an epoch's batches are made. top-up: all samples in a random order, and the last batch filled with random
    ones; short: the same order, and a last batch of what is left; replacement: every sample drawn with replacement.
    """

    augmentation: str | None
    """Augmentation of training images: none or flip-crop. By default the data set's own."""

    precision: Literal["float32", "float64", "tf32", "bf16"] | None
    """Number format of models and states, float32 or float64. With bf16, activations and products of local training are
    in bfloat16, and all sums, models and states in float32. With tf32, products are made by a GPU's matrix units. By
    default bf16 for the batched engine on a GPU, and float32 elsewhere.
    """


class ExecutionSettings(TypedDict, total=False):
    """The settings that may stand beside a specification: how its runs are executed."""

    data_dir: str | None
    """Folder of the official data files. By default $ADABEST_DATA, or the platform's cache folder."""

    evaluate_every: int
    """Rounds between two evaluations; the last round is always evaluated."""

    checkpoint_every: int | None
    """Rounds between two checkpoints, more where the disk is too slow for that; 0 for a checkpoint only when
    interrupted. By default as often as takes at most 5 % of the time.
    """

    engine: Literal["batched", "reference"]
    """How rounds are executed: batched, clients side by side, or reference, one after another."""

    device: str
    """Device: cpu, cuda or cuda:N."""

    precision: Literal["float32", "float64", "tf32", "bf16"] | None
    """Number format of models and states, float32 or float64. With bf16, activations and products of local training are
    in bfloat16, and all sums, models and states in float32. With tf32, products are made by a GPU's matrix units. By
    default bf16 for the batched engine on a GPU, and float32 elsewhere.
    """

    backend: Literal["gloo", "nccl"] | None
    """How vectors on GPUs travel between the processes of a torchrun job: nccl, or gloo through the machines' memory.
    By default nccl.
    """

    clients_in_parallel: int | None
    """How many clients train at a time at most. By default as many as fit into memory."""

    threads: int | None
    """CPU threads: this many clients train side by side, and torch uses as many. By default one client on each core,
    and torch's own number of threads, or one thread for models of under 100,000 parameters.
    """

    client_memory: str | None
    """Memory for what clients keep between rounds, as in 6GiB. By default a quarter of the machine's memory. What
    doesn't fit goes to a file in the run's folder.
    """

    client_device_memory: str | None
    """GPU memory for what clients keep between rounds; it is filled first. By default a quarter of the GPU's memory."""

    client_disk: str | None
    """Largest size of the file for what clients keep between rounds. By default what is free on the disk."""


class Objects(TypedDict, total=False):
    """The settings that may be Python objects, as a run that is resumed is given them again."""

    dataset: "str | Dataset"
    """Data set: digits, mnist, emnist-l, emnist-letters, cifar10, cifar100, a path to an .npz file, or module:function,
    with options as in table,path=mine.csv,test_share=0.2 (CSV or Parquet), images,path=pictures,test_share=0.2,
    npz,path=mine.npz,labels=map, leaf,path=femnist, huggingface,path=folder,client=writer or
    synthetic,samples=1000000,shape=3x32x32.
    """

    algorithm: "str | Algorithm"
    """Algorithm: fedavg, fedprox, scaffold, scaffold-m, scaffold-gradient, feddyn, adabest, another that `adabest
    algorithms` lists, or module:Class.
    """

    model: "str | Module | Factory | None"
    """Model: logistic, mlp, cnn, resnet, or module:function, with options as in mlp,hidden=100x100. By default the data
    set's own.
    """

    task: "str | Objective"
    """What models learn, and are judged by: classification, multi-label, regression, next-token, segmentation, or
    module:Objective.
    """

    loss: "str | Loss | None"
    """Loss: cross-entropy, or module:function of outputs and targets. By default the task's own."""

    metrics: "Sequence[str | Function]"
    """Metrics beside the task's: names of scikit-learn's scores, such as f1_macro or roc_auc_ovr, or module:function of
    (outputs, targets).
    """
