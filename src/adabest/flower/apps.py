"""ServerApp and ClientApp of a project, as Flower starts them."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from flwr.serverapp import Grid, ServerApp

from adabest.errors import AdabestError, InputError
from adabest.flower.grid import FlowerNetwork, to_parcel, to_records
from adabest.flower.node import Node
from adabest.flower.project import Project, Terms
from adabest.flower.server import make_run


def server_app(project: Project) -> ServerApp:
    """The ServerApp of a project.

    Flower finds it in a module that says ``app = server_app(project)``.

    Args:
        project: The project.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        try:
            _refuse_relative_out(context.run_config)
            folder = make_run(project, context.run_config, FlowerNetwork(grid), tell)
        except AdabestError as error:
            tell(str(error))
            raise
        tell(f"the run is in {folder}; look at it with: adabest show {folder}")

    return app


def client_app(project: Project, mods: Sequence[Mod] = ()) -> ClientApp:
    """The ClientApp of a project.

    Flower finds it in a module that says ``app = client_app(project)``.

    Args:
        project: The project.
        mods: Flower's modifiers of training: each sees the message and the reply, and may change them.
    """
    app = ClientApp()

    def answer(kind: str, message: Message, context: Context) -> Message:
        node = Node(project, context.run_config, context.node_config)
        return Message(to_records(node.answer(kind, to_parcel(message.content))), reply_to=message)

    @app.query()
    def announce(message: Message, context: Context) -> Message:
        return answer("query", message, context)

    @app.train(mods=list(mods))
    def train(message: Message, context: Context) -> Message:
        return answer("train", message, context)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return answer("evaluate", message, context)

    return app


def _refuse_relative_out(run_config: Mapping[str, Any]) -> None:
    """Refuses a folder that another SuperLink, started elsewhere, wouldn't find: it would begin the run again.

    Raises:
        InputError: With what would be right.
    """
    out = run_config.get("out", Terms.out)
    if isinstance(out, str) and out and not Path(out).is_absolute():
        raise InputError(
            f"out = {out!r} should be an absolute path, as in out = {str(Path(out).absolute())!r}: the server works in "
            "the folder in which the SuperLink was started"
        )


def tell(words: str) -> None:
    """Prints a line where ``flwr run --stream`` shows it."""
    print(f"adabest: {words}", file=sys.stderr, flush=True)
