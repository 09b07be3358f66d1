"""One call of a node by ComfyUI: a call of the client with an envelope, whose messages are replayed while it waits."""

from __future__ import annotations

from typing import Any, Callable

from comfy_supervisor.calls import Call, Options
from comfy_supervisor.wire import decode
from comfy_supervisor.wire.channel import Message, Waiter
from comfy_supervisor.wire.errors import CannotCross

Replay = Callable[[dict[str, Any]], None]


class HostCall(Call):
    """A call whose parameters say `comfyui`; made by the link for each NodeCall."""

    def __init__(
        self,
        session: Any,
        environment: str,
        node: str,
        options: Options,
        waiter: Waiter,
        fields: dict[str, Any],
        replay: Replay,
    ) -> None:
        """`replay` gets the messages of the node, on the thread that waits."""
        super().__init__(session, environment, node, options, waiter)
        self._fields = fields
        self._replay = replay
        self.generation = 0  # the worker that answered

    def params(self) -> dict[str, Any]:
        """The parameters of the request."""
        params = super().params()
        params["comfyui"] = self._fields
        return params

    def linger(self, seconds: float) -> None:
        """Waits on this thread for a node that answers at once; messages stay where they are."""
        if self._channel is not None:
            self._channel.wait(self._waiter, seconds)

    def _serve(self, item: tuple[Message, bytes]) -> None:
        if not self._message(item):
            super()._serve(item)

    async def _serve_async(self, item: tuple[Message, bytes]) -> None:
        if not self._message(item):
            await super()._serve_async(item)

    def _message(self, item: tuple[Message, bytes]) -> bool:
        message, body = item
        if message.get("method") != "comfyui.message":
            return False
        session = self._session
        try:
            said = decode.decode(message, body, session.memory, session.role, "message")
        except CannotCross:
            return True  # progress that can not be read is no reason to fail the node
        if isinstance(said, dict):
            self._replay(said)
        return True

    def _finish(self) -> None:
        reply = self._waiter.reply
        if isinstance(reply, tuple):
            message = reply[0]
            result = message.get("result")
            if isinstance(result, dict) and isinstance(result.get("generation"), int):
                self.generation = result["generation"]
        super()._finish()
