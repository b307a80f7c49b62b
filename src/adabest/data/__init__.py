"""Data sets as tensors.

A data set of your own is an ``.npz`` file, a ``Dataset``, or a function ``module:name`` that returns one; other
packages may offer some in the entry-point group ``adabest.datasets``. The keyword parameters of such a function are
options behind its name, ``module:name,key=value``; one called ``data_dir`` is given the folder of data files.
"""
