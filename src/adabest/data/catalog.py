"""The catalog of published data sets: what they are, where they are published, and the checksums of their files.

The md5 checksums of the archives are those of the publishers' pages and of torchvision. The checksums of the files in
them were compared with real files, and with those that others have published. Defaults and normalisation are those of
the paper and its reference code; MNIST is treated like EMNIST-L.
"""

from adabest.data import cifar
from adabest.data.dataset import Defaults
from adabest.data.emnist import read_matlab, read_transposed_idx
from adabest.data.idx import read_idx
from adabest.data.spec import Archive, Layout, Remote, Spec

_LETTERS = Defaults(model="mlp,hidden=100x100", batch_size=45, weight_decay=1e-4, augmentation="none")
_CIFAR = Defaults(model="cnn", batch_size=45, weight_decay=1e-3, augmentation="flip-crop")

# MNIST's own site has been refusing downloads since 2024, so torchvision's mirror comes first.
_MNIST_SITES = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/")
_MNIST_ARCHIVES = {
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}

MNIST = Spec(
    name="mnist",
    shape=(1, 28, 28),
    labels=range(10),
    classes=10,
    records={"train": 60_000, "test": 10_000},
    samples={"train": 60_000, "test": 10_000},
    mean=None,
    std=None,
    defaults=_LETTERS,
    homes=("MNIST/raw", "MNIST", "mnist", ""),
    layouts=(
        Layout(
            name="idx",
            train=("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
            test=("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
            read=read_idx,
            folders=("",),
            archive=None,
            sums={
                "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
                "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
                "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
                "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
            },
        ),
    ),
    remotes=tuple(
        Remote(f"MNIST/raw/{name}.gz", tuple(f"{site}{name}.gz" for site in _MNIST_SITES), md5)
        for name, md5 in _MNIST_ARCHIVES.items()
    ),
    page="http://yann.lecun.com/exdb/mnist/",
)


def _emnist(name: str, letters: int) -> Spec:
    """The letters split of EMNIST, both cases merged; its labels count from 1. Every letter has 4,800 + 800 images."""
    return Spec(
        name=name,
        shape=(1, 28, 28),
        labels=range(1, 27),
        classes=letters,
        records={"train": 124_800, "test": 20_800},
        samples={"train": 4_800 * letters, "test": 800 * letters},
        mean=None,
        std=None,
        defaults=_LETTERS,
        homes=("EMNIST/raw", "EMNIST", "emnist", ""),
        layouts=(
            Layout(
                name="idx",
                train=("emnist-letters-train-images-idx3-ubyte", "emnist-letters-train-labels-idx1-ubyte"),
                test=("emnist-letters-test-images-idx3-ubyte", "emnist-letters-test-labels-idx1-ubyte"),
                read=read_transposed_idx,
                folders=("", "gzip"),
                archive=Archive("gzip.zip", "gzip", "58c8d27c78d21e728a6bc7b3cc06412e"),
                sums={},
            ),
            Layout(
                name="matlab",
                train=("emnist-letters.mat",),
                test=("emnist-letters.mat",),
                read=read_matlab,
                folders=("", "matlab"),
                archive=Archive("matlab.zip", "matlab"),
                sums={},
            ),
        ),
        remotes=(
            Remote(
                "EMNIST/raw/gzip.zip",
                ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
                "58c8d27c78d21e728a6bc7b3cc06412e",
            ),
        ),
        page="https://www.nist.gov/itl/products-and-services/emnist-dataset",
    )


EMNIST_L = _emnist("emnist-l", 10)
EMNIST_LETTERS = _emnist("emnist-letters", 26)

_CIFAR_SITE = "https://www.cs.toronto.edu/~kriz/"

CIFAR10 = Spec(
    name="cifar10",
    shape=(3, 32, 32),
    labels=range(10),
    classes=10,
    records={"train": 50_000, "test": 10_000},
    samples={"train": 50_000, "test": 10_000},
    mean=(0.491, 0.482, 0.447),
    std=(0.247, 0.243, 0.262),
    defaults=_CIFAR,
    homes=("", "cifar10", "CIFAR10"),
    layouts=(
        Layout(
            name="binary",
            train=tuple(f"data_batch_{number}.bin" for number in range(1, 6)),
            test=("test_batch.bin",),
            read=cifar.binary(label_bytes=1),
            folders=("cifar-10-batches-bin",),
            archive=Archive("cifar-10-binary.tar.gz", "cifar-10-batches-bin", "c32a1d4ab5d03f1284b67883e8d87530"),
            sums={
                "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
                "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
                "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
                "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
                "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
                "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
            },
        ),
        Layout(
            name="pickled",
            train=tuple(f"data_batch_{number}" for number in range(1, 6)),
            test=("test_batch",),
            read=cifar.pickled("labels"),
            folders=("cifar-10-batches-py",),
            archive=Archive("cifar-10-python.tar.gz", "cifar-10-batches-py", "c58f30108f718f92721af3b95e74349a"),
            sums={
                "data_batch_1": "c99cafc152244af753f735de768cd75f",
                "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                "data_batch_4": "634d18415352ddfa80567beed471001a",
                "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                "test_batch": "40351d587109b95175f43aff81a1287e",
            },
        ),
    ),
    remotes=(
        Remote("cifar-10-binary.tar.gz", (f"{_CIFAR_SITE}cifar-10-binary.tar.gz",), "c32a1d4ab5d03f1284b67883e8d87530"),
    ),
    page=f"{_CIFAR_SITE}cifar.html",
)

CIFAR100 = Spec(
    name="cifar100",
    shape=(3, 32, 32),
    labels=range(100),
    classes=100,
    records={"train": 50_000, "test": 10_000},
    samples={"train": 50_000, "test": 10_000},
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
    defaults=_CIFAR,
    homes=("", "cifar100", "CIFAR100"),
    layouts=(
        Layout(
            name="binary",
            train=("train.bin",),
            test=("test.bin",),
            read=cifar.binary(label_bytes=2),  # coarse, then fine
            folders=("cifar-100-binary",),
            archive=Archive("cifar-100-binary.tar.gz", "cifar-100-binary", "03b5dce01913d631647c71ecec9e9cb8"),
            sums={
                "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
                "test.bin": "4499cfba6c016c1be1438163640a0898",
            },
        ),
        Layout(
            name="pickled",
            train=("train",),
            test=("test",),
            read=cifar.pickled("fine_labels"),
            folders=("cifar-100-python",),
            archive=Archive("cifar-100-python.tar.gz", "cifar-100-python", "eb9058c3a382ffc7106e4002c42a8d85"),
            sums={
                "train": "16019d7e3df5f24257cddd939b257f8d",
                "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
            },
        ),
    ),
    remotes=(
        Remote(
            "cifar-100-binary.tar.gz", (f"{_CIFAR_SITE}cifar-100-binary.tar.gz",), "03b5dce01913d631647c71ecec9e9cb8"
        ),
    ),
    page=f"{_CIFAR_SITE}cifar.html",
)

OFFICIAL: dict[str, Spec] = {spec.name: spec for spec in (MNIST, EMNIST_L, EMNIST_LETTERS, CIFAR10, CIFAR100)}
