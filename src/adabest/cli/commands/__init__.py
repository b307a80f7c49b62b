"""The commands, one module each: ``fields`` says what a command takes, ``action`` returns what does it.

A module imports at its head what ``--help`` needs, and in ``action`` what the command needs.
"""
