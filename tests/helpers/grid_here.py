"""Flower's messages and apps without its processes: a grid that calls ClientApps in this one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity

from adabest.flower.project import NodeConfig


class GridHere:
    """Stands for Flower's grid: each message is answered at once by the ClientApp of its node.

    Attributes:
        lost: Nodes whose messages it doesn't take.
    """

    def __init__(self, app: ClientApp, run_config: Mapping[str, Any], nodes: Sequence[NodeConfig]) -> None:
        self._app, self._run_config, self._nodes = app, dict(run_config), nodes
        self._replies: dict[str, Message] = {}
        self.lost: set[int] = set()
        # Messages are made only where Flower has set these.
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1

    def get_node_ids(self) -> Iterable[int]:
        return range(len(self._nodes))

    def push_messages(self, messages: Iterable[Message]) -> list[str | None]:
        tickets: list[str | None] = []
        for message in messages:
            number = f"{len(self._replies)}-{message.metadata.dst_node_id}"
            message.metadata.__dict__["_message_id"] = number
            if message.metadata.dst_node_id in self.lost:
                tickets.append(None)
                continue
            self._replies[number] = self._answer(message)
            tickets.append(number)
        return tickets

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [self._replies[name] for name in message_ids]

    def _answer(self, message: Message) -> Message:
        """A SuperNode answers so, too, if its ClientApp raises."""
        node = message.metadata.dst_node_id
        context = Context(0, node, dict(self._nodes[node]), RecordDict(), self._run_config)
        try:
            return self._app(message, context)
        except Exception as error:
            return Message(Error(2, f"{type(error).__name__}: {error}"), reply_to=message)
