"""The server of ``serve``: uvicorn's, ended by any Ctrl-C since the command began."""

import socket

import uvicorn

from pinchpoint.interruption import came


class Server(uvicorn.Server):  # type: ignore[misc]  # not followed: it may be absent
    """Asks in each turn of its loop, ten times a second, whether it has been ended already."""

    async def on_tick(self, counter: int) -> bool:
        """True ends the loop."""
        return came() or await super().on_tick(counter)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Return after Ctrl-C: uvicorn raises it once more when it has ended, inside asyncio."""
        try:
            await super().serve(sockets)
        except KeyboardInterrupt:
            return
