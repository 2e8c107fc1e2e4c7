"""A real server on a free port of this machine, for the length of a test."""

import socket
from contextlib import contextmanager
from http.client import HTTPConnection
from threading import Thread


@contextmanager
def served(application):
    """The port on which the application answers."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(application, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        listening.close()
        assert not thread.is_alive()


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.text = response.read().decode("utf-8")


def asked(port, address, method="GET", **headers):
    """The answer to one request, whose address goes over the wire as it is written here."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.putrequest(method, address, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        return Answer(connection.getresponse())
    finally:
        connection.close()
