"""What the command line exits with."""

DONE = 0
FAULTY = 1
BAD_INPUT = 2
DIVERGED = 3
DAMAGED = 4
MACHINE_FAILED = 5
INTERRUPTED = 130
OUTPUT_CLOSED = 141

# A bug ends with a traceback, for which Python has the code 1, too.
MEANINGS = {
    DONE: "done",
    FAULTY: "an error in our code or yours (traceback, or found by check)",
    BAD_INPUT: "bad input",
    DIVERGED: "diverged",
    DAMAGED: "damage found",
    MACHINE_FAILED: "the machine failed (disk, memory)",
    INTERRUPTED: "interrupted",
    OUTPUT_CLOSED: "standard output was closed",
}
