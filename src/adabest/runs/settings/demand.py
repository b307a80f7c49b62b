"""What a run asks of the machine, estimated before anything of it is allocated."""

import os
from dataclasses import dataclass

from adabest.errors import InputError
from adabest.federation.batches import batches_per_epoch
from adabest.machine import refuse_beyond_memory

# A step takes ten microseconds at the very least, so one client would train for hours without a chance to save a round.
MOST_STEPS = 10**9
# More cores than most machines have; each thread takes a stack, and buffers for a client. A configuration from a
# machine with more cores than this one still runs, however slowly.
MOST_THREADS = 256
# Runs of one plan. Each takes a folder of about ten files, and milliseconds before the first of them begins.
MOST_RUNS = 10_000

_PLACE = 48  # bytes of a sample's place in the tables of a round: keys, their order, draws, indices and labels
_STEP = 1000  # bytes of what is kept of a step until the round's end: its loss and accuracy, as objects
_NUMBER = 4  # bytes of an input's number in training
_EVALUATED = 2000  # samples that are evaluated at a time


@dataclass(frozen=True)
class Demand:
    """The numbers that decide how much memory and how many steps a round takes.

    Attributes:
        epochs: Passes of a client over its samples.
        batch_size: Samples in a step.
        largest: n_i of the largest client, as far as it is known.
        clients: How many clients have their tables in memory at a time.
        inputs: The numbers of one input.
        held_out: The bytes of the inputs of all validation clients, which are gathered to be evaluated.
        drawn_steps: The largest number of steps that can be drawn; None where each client has its own.
    """

    epochs: int
    batch_size: int
    largest: int
    clients: int
    inputs: int
    held_out: int
    drawn_steps: int | None = None

    @property
    def steps(self) -> int:
        """K_i of the largest client, or the largest that can be drawn."""
        return self.drawn_steps or self.epochs * int(batches_per_epoch(self.largest, self.batch_size))

    def bytes(self) -> dict[str, int]:
        """The memory that a round takes beside models and data, by what takes it."""
        batch = self.batch_size * self.inputs * _NUMBER
        places = f"the samples of {self.steps:,} steps in batches of {self.batch_size:,} for {self.clients:,} at a time"
        return {
            places: self.clients * self.steps * (self.batch_size * _PLACE + _STEP),
            "the inputs of a step": 2 * batch,
            "the inputs of validation clients": self.held_out,
            "inputs that are evaluated": 2 * _EVALUATED * self.inputs * _NUMBER,
        }

    def _reason(self) -> str:
        if self.drawn_steps is not None:
            return "the largest number that may be drawn"
        return f"{self.epochs:,} epochs of {self.largest:,} samples in batches of {self.batch_size:,}"

    def refuse_absurd(self) -> None:
        """Refuses a round that could never end, or would take more memory than there is.

        Raises:
            InputError: With the estimate, and which settings to lower.
        """
        own = self.drawn_steps is None
        if self.steps > MOST_STEPS:
            raise InputError(
                f"a client would make {self.steps:,} local steps in a round ({self._reason()}); at most "
                f"{MOST_STEPS:,} are taken. {'Lower epochs, or raise batch_size' if own else 'Lower local_steps'}"
            )
        advice = "lower epochs, batch_size, clients_in_parallel or validation_clients"
        refuse_beyond_memory("a round", self.bytes(), advice)


def refuse_many_threads(threads: int | None) -> None:
    """Refuses more CPU threads than any machine can use.

    Raises:
        InputError: If there are more.
    """
    most = max(MOST_THREADS, os.cpu_count() or 1)
    if threads is not None and threads > most:
        raise InputError(
            f"threads = {threads:,}: this machine has {os.cpu_count()} processors, and at most {most:,} threads are "
            "taken; leave it out for one on each processor"
        )


def refuse_many_runs(points: int, seeds: int = 1) -> None:
    """Refuses a plan of more runs than could be begun.

    Args:
        points: How many different settings it has.
        seeds: How many seeds each of them is run with.

    Raises:
        InputError: If there are more.
    """
    if points * seeds > MOST_RUNS:
        each = "" if seeds == 1 else f" × {seeds:,} seeds = {points * seeds:,} runs"
        raise InputError(
            f"{points:,} combinations{each}, each with a folder of its own, are more than the {MOST_RUNS:,} runs that "
            "are planned at a time; vary fewer settings, or fewer values of each, or search a space with `adabest tune`"
        )
