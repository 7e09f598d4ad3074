#!/usr/bin/env python3
"""remote_shell.py - a remote shell over the network, for hosts made of network namespaces: unlike `ip netns exec` it is
cut off when their links are.

remote_shell.py serve ADDRESS          runs the commands that come in, each with its connection as input and output
remote_shell.py ADDRESS COMMAND...     runs a command there
"""
import os
import select
import signal
import socket
import sys

PORT = 22022


def serve(address):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.create_server((address, PORT))
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            command = connection.makefile("rb", buffering=0).readline()
            if not command:
                os._exit(0)
            os.dup2(connection.fileno(), 0)
            os.dup2(connection.fileno(), 1)
            os.execv("/bin/sh", ["sh", "-c", "exec " + command.decode()])
        connection.close()


def pump(source, target):
    """False at the end of the source."""
    data = os.read(source, 65536)
    while data:
        data_left = data[os.write(target, data):]
        if not data_left:
            return True
        data = data_left
    return False


def call(address, words):
    there = socket.create_connection((address, PORT))
    there.sendall(" ".join(words).encode() + b"\n")
    inputs = {0: there.fileno(), there.fileno(): 1}
    while there.fileno() in inputs:
        for ready in select.select(list(inputs), [], [])[0]:
            if not pump(ready, inputs[ready]):
                del inputs[ready]
                if ready == 0:
                    there.shutdown(socket.SHUT_WR)


if sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    call(sys.argv[1], sys.argv[2:])
