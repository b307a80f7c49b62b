"""Fuzzing: everything that reads what others wrote is fed with damaged inputs, and may only ever refuse them.

``targets`` has one function of bytes for each reader, ``seeds`` has valid inputs and words to damage them with,
``mutation`` damages them, and ``driver`` counts inputs, time and memory. From the folder ``tests``::

    python -m fuzz npz --inputs 100000
    python -m fuzz npz --atheris -max_total_time=600

The second needs the package ``atheris``, which is guided by coverage and is no requirement of this project.
"""
