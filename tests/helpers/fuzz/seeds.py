"""Valid inputs for each target, and words that mean something in them."""

import functools
import gzip
import json
import re
import zlib

import tiny_data as tiny

from adabest.runs.results_file import Choice, PointRow, Result, Results, write_choices
from adabest.runs.stored_run import read_run
from fuzz.targets import ARRAYS, npy, npz, run_folder, scratch

_SETTINGS = (
    "dataset algorithm model clients validation_clients partition alpha shards unbalance participation sampler churn "
    "schedule rounds epochs batch_size learning_rate weight_decay clip augmentation local_steps server_rate stop_at "
    "seed average_from evaluate_every threads client_memory precision engine loggers beta mu"
)
_NUMBERS = "0 -1 1e308 nan inf 2147483648 9223372036854775807 1000000000000"
_JSON = '"users" "user_data" "runs" "choices" "status" "finished" "round" [ ] { } [] {} null true NaN "" "a" , :'


def _words(text: str) -> list[bytes]:
    return [word.encode("latin-1") for word in text.split()]


WORDS: dict[str, list[bytes]] = {
    "npz": [b"\x93NUMPY", b"PK\x01\x02", *_words(f"'descr' 'shape' ( ) '<f4' '|O' '<U9' True {_NUMBERS}")],
    "idx": [b"\0\0\x08\x03", b"\0\0\x08\x01", b"\xff\xff\xff\xff"],
    "cifar": [b"cnumpy\ndtype\n", b"U\x04data", b"r\xff\xff\xff\x7f", *_words("R b ( t ] e } u .")],
    "mat": [b"\x0e\0\0\0", b"\x0f\0\0\0", b"\xff\xff\xff\xff", b"\x01\0\x02\0", *_words("dataset train images")],
    "leaf": _words(f"{_JSON} {_NUMBERS}"),
    "archive": [b"\x80", b"PK\x01\x02", *_words("inside/first ustar L x S 00000000000 77777777777")],
    "configuration": [
        *(f"\n{name} = ".encode() for name in _SETTINGS.split()),
        *_words(
            '"iid" "none" 2020-01-01 10:00:00 [[ ]] { } """ = . "math:pi" "adabest,beta=0.5" "mlp,hidden= "6GiB" true'
        ),
        *_words(_NUMBERS),
    ],
    "run_folder": _words(f"{_JSON} {_NUMBERS}"),
    "results_file": _words(f"{_JSON} {_NUMBERS}"),
    "command_line": [
        *(f"\n--{name.replace('_', '-')}\n".encode() for name in _SETTINGS.split()),
        *(b"\n" + word for word in _words("run sweep --help --vary --seeds --out --overwrite --lanes")),
        *_words(f"mlp,hidden= math:pi beta= config.toml {_NUMBERS}"),
    ],
}

_QUICK = "\n--rounds\n1\n--clients\n3\n--epochs\n1\n--partition\niid\n--model\nlogistic\n--participation\n0.4"
_COMMANDS = [
    "run" + _QUICK,
    "run\nconfig.toml\n--algorithm\nfeddyn\n--mu\n0.1",
    "run" + _QUICK + "\n--algorithm\nadabest,beta=0.5\n--out\nhere\n--overwrite",
    "run" + _QUICK + "\n--dataset\nsynthetic,samples=20,shape=4,test=5\n--schedule\n1:leave:0-1",
    "run" + _QUICK + "\n--sampler\nweighted\n--churn\n0.5\n--clip\n0\n--stop-at\n0.5\n--threads\n1",
    "compare\n--algorithms\nfedavg\nadabest,beta=0.9" + _QUICK,
    "sweep\n--algorithm\nadabest\n--vary\nbeta=0.5,0.9\n--seeds\n0\n1" + _QUICK,
    "tune\n--algorithm\nadabest\n--vary\nbeta=0.5,0.9" + _QUICK,
    "partition\n--dataset\nsynthetic,samples=50,shape=4\n--clients\n3",
    "costs\n--model\nmlp,hidden=5\n--input-shape\n1x8x8",
    "illustrate\n--rounds\n1",
    "layers\n--model\nmlp",
    "algorithms",
    "datasets",
    "list\nruns",
    "show\nruns",
    "resume\nruns",
    "report\nruns\n--html\npage.html",
    "export\nruns\nsafetensors",
    "--help",
    "run\n--help",
    "--version",
]
_CONFIGURATIONS = [
    'dataset = "digits"\nalgorithm = "adabest"\nbeta = 0.5\nrounds = 10\nclients = 20\nseed = 3\n',
    'algorithm = "feddyn,mu=0.1"\nmodel = "mlp,hidden=10x10"\npartition = "shards"\nshards = 3\nlearning_rate = 1e-1\n',
    'schedule = ["10:leave:0-4", "20:join:0,2-3"]\nparticipation = 0.2\nsampler = "weighted"\nchurn = 0.1\nclip = 0\n',
    'client_memory = "6GiB"\nprecision = "float64"\nengine = "reference"\nthreads = 2\nstop_at = 0.9\n',
    "# all by default\n",
]
_LEAF = {
    "users": ["a", "b"],
    "num_samples": [2, 1],
    "user_data": {"a": {"x": [[0.5, 1], [0, 0.25]], "y": [0, 2]}, "b": {"x": [[1, 1]], "y": [1]}},
}


@functools.cache
def seeds_of(name: str) -> list[bytes]:
    """The valid inputs of a target, by its name."""
    arrays = {key: npy(array) for key, array in ARRAYS.items()}
    if name == "npz":
        return [
            b"\0" + npz(arrays),
            *(bytes([number]) + arrays[key] for number, key in enumerate(arrays, start=len(arrays))),
        ]
    if name == "idx":
        images, labels = (tiny.MNIST_FILES[f"train-{kind}-ubyte"] for kind in ("images-idx3", "labels-idx1"))
        return [b"\0" + images, b"\1" + labels]
    if name == "cifar":
        return [b"\0" + tiny.CIFAR100_BINARY["train.bin"], *2 * [b"\1" + tiny.CIFAR100_PICKLED["train"]]]
    if name == "mat":
        whole = tiny.matlab()
        return [b"\0" + whole, *3 * [b"\1" + zlib.decompress(whole[136:])]]
    if name == "leaf":
        return [json.dumps(_LEAF).encode()]
    if name == "archive":
        files = {"first": b"content " * 20, "second": b"more"}
        packed = tiny.tar_archive("inside", files)
        plain = [b"\2" + gzip.decompress(packed), b"\3" + gzip.compress(b"content")]
        return [b"\0" + tiny.zip_archive("inside", files), b"\1" + packed, *plain]
    if name == "configuration":
        return [text.encode() for text in _CONFIGURATIONS]
    if name == "run_folder":
        return [bytes([number]) + content for number, content in enumerate(run_folder().values())]
    if name == "results_file":
        return _result_files()
    return [command.encode() for command in _COMMANDS]


def _result_files() -> list[bytes]:
    run_folder()
    result = Result.of(read_run(scratch() / "run"), "digits/40/iid", "adabest", {"beta": 0.5})
    points: list[PointRow] = [{"point": {"beta": 0.5}, "validation_accuracy": [0.5], "status": ["finished"]}]
    tuning = Choice("*", "adabest", {"beta": 0.5}, points, 2, [0])
    path = scratch() / "seed.json"
    Results("table1", [result], [tuning]).write(path)
    results = path.read_bytes()
    write_choices(path, [tuning])
    choices = path.read_bytes()
    files = [b"\0" + results, b"\1" + choices]
    # Without a sum, as version 0.4.0 wrote them: with one, every change is refused before a field is looked at.
    return files + 3 * [re.sub(rb',\n"sha256": "[0-9a-f]*"', b"", file) for file in files]
