"""A client asks a service for one record after the other; each answer takes 15 ms."""

import argparse
import multiprocessing
import socket
import time


def serve(listener):
    connection, _ = listener.accept()
    while data := connection.recv(64):
        time.sleep(0.015)
        connection.sendall(data * 4)


def lookup(connection, key):
    connection.sendall(f"{key:08d}".encode())
    return connection.recv(4096)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=12)
    end = time.monotonic() + args.parse_args().seconds
    listener = socket.create_server(("127.0.0.1", 0))
    server = multiprocessing.Process(target=serve, args=(listener,), daemon=True)
    server.start()
    connection, size = socket.create_connection(listener.getsockname()), 0
    while time.monotonic() < end:
        size += len(lookup(connection, size))
    print(size)


if __name__ == "__main__":
    main()
