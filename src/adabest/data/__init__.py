"""Data sets as tensors.

A data set of your own is an ``.npz`` file, a ``Dataset``, or a function ``module:name`` that returns one. Other
packages may offer functions in the entry-point group ``adabest.datasets``. The function's keyword parameters are
options behind its name, ``module:name,key=value``; a parameter ``data_dir`` gets the folder of data files.
"""
