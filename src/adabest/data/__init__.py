"""Data sets as tensors.

A data set of your own is an ``.npz`` file, a ``Dataset``, or a function ``module:name`` that returns one; other
packages may offer some in the entry-point group ``adabest.datasets``. The keyword parameters of such a function are
options behind its name, ``module:name,key=value``; one called ``data_dir`` is given the folder of data files.
"""

from adabest.data.augmentation import AUGMENTATIONS
from adabest.data.dataset import Dataset, Defaults, from_arrays, from_npz
from adabest.data.inputs import Inputs
from adabest.data.listing import Listing, list_datasets
from adabest.data.loading import DATASETS, findable, is_file_name, load_dataset
from adabest.data.location import data_folder

__all__ = [
    "AUGMENTATIONS",
    "DATASETS",
    "Dataset",
    "Defaults",
    "Inputs",
    "Listing",
    "data_folder",
    "findable",
    "from_arrays",
    "from_npz",
    "is_file_name",
    "list_datasets",
    "load_dataset",
]
