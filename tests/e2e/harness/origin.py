"""The server side of a test: a scripted origin.

    origin.on(fn)          fn(conn) runs whenever a connection has bytes to read; it may read one
                           request and return, or keep the connection to itself until it ends
    origin.on_conns(f, g)  the first connection gets f, the second g, the last one all others
    origin.requests        every request that conn.read_request() returned, in order
    origin.conns           every connection since the last reset(), with its bytes

A script that reads with read_request() is strict: what culvert writes must be what RFC 9112
lets a sender generate. An exception in a script other than the end of the connection is kept in
origin.errors, and the fixture fails the test with it.
"""

import hashlib
import socket
import threading
import traceback

from .http import Eof, Peer, Request, WireError, body_length, parse_head
from . import net


class OriginConn(Peer):
    def __init__(self, origin, sock, number):
        super().__init__(sock, timeout=30.0)
        self.origin = origin
        self.number = number
        self.requests = []
        self.done = threading.Event()       # the script has ended
        self.released = threading.Event()   # reset() wants it to end

    # -- reading

    def read_head(self):
        head = parse_head(self.read_until(b"\r\n\r\n"), Request)
        if head.version == "HTTP/1.1" and head.one("Host") is None:
            raise WireError("no Host")
        return head

    def read_body(self, head, sink=None):
        length = body_length(head)
        if length is None:
            head.framing = "chunked"
            head.body = self.read_chunked(head, sink)
        elif length >= 0:
            head.framing = "length"
            head.body = self.read_exactly(length, sink)
        head.complete = True
        return head

    def read_request(self, sink=None):
        """One whole request, strictly; it is remembered."""
        head = self.read_head()
        self.read_body(head, sink)
        self.remember(head)
        return head

    def remember(self, head):
        self.requests.append(head)
        with self.origin.lock:
            self.origin.requests.append(head)

    def wait_readable(self):
        """Waits for bytes, without reading them; raises Eof."""
        self.sock.settimeout(None)
        try:
            if not self.sock.recv(1, socket.MSG_PEEK):
                self.ended = "fin"
                raise Eof("FIN between requests")
        finally:
            if not self.closed:
                self.sock.settimeout(30.0)

    def peek_head(self):
        """Waits until a head lies in the kernel's buffer, without reading it."""
        def there():
            try:
                data = self.sock.recv(65536, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            if not data:
                raise Eof("FIN before a head")
            return b"\r\n\r\n" in data and data
        return net.wait_until(there, what="a request at the origin")

    def wait_end(self):
        """Reads until the other side ends; returns "fin" or "rst"."""
        return self.drain_to_close()[1]

    # -- writing

    def respond(self, status=200, body=b"ok\n", fields=(), reason="X", close=False):
        """One whole answer with Content-Length."""
        if isinstance(body, str):
            body = body.encode()
        lines = [f"HTTP/1.1 {status} {reason}", f"Content-Length: {len(body)}"]
        lines += [f if isinstance(f, str) else f"{f[0]}: {f[1]}" for f in fields]
        if close:
            lines.append("Connection: close")
        self.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body)
        if close:
            self.close()
        return self

    def drip(self, data, pause):
        """One byte at a time, with a pause after each."""
        for i in range(len(data)):
            self.send(data[i:i + 1])
            if self.released.wait(pause):
                return

    # -- asserting

    def wait_ended(self, timeout=10.0):
        """The other side ended this connection (the script must be reading, or have returned)."""
        net.wait_until(lambda: self.ended, timeout, f"culvert ends connection {self.number} to the origin")
        return self.ended


def answer_ok(conn):
    """The default script: one request, one answer that says who answered what."""
    req = conn.read_request()
    conn.respond(200, b"" if req.method == "HEAD" else f"{conn.origin.name} {req.method} {req.target}\n",
                 [("X-Origin", conn.origin.name)])


def answer_raw(data, then=None, whole=True):
    """A script: read a request (or only its head), send these bytes, then "close", "rst", "fin" or stay."""
    def script(conn):
        if whole:
            conn.read_request()
        else:
            conn.remember(conn.read_head())
        conn.send(data)
        if then == "close":
            conn.close()
        elif then == "rst":
            conn.rst()
        elif then == "fin":
            conn.half_close()
            conn.wait_end()
    return script


def answer_hash(conn):
    """A script: answers with the length and the SHA-256 of the body."""
    class Sink:
        total, hash = 0, hashlib.sha256()

        def update(self, data):
            Sink.total += len(data)
            Sink.hash.update(data)
    Sink.hash = hashlib.sha256()
    Sink.total = 0
    conn.read_request(sink=Sink())
    conn.respond(200, f"{Sink.total} {Sink.hash.hexdigest()}")


def answer_never(conn):
    """A script: reads for ever, says nothing."""
    conn.wait_end()


class Origin:
    def __init__(self, name="a", host="127.0.0.1", port=0, path=None, rcvbuf=None):
        self.name = name
        self.host = host
        self.path = path
        self.lock = threading.Lock()
        self.handlers = [answer_ok]
        self.conns = []
        self.requests = []
        self.errors = []
        self.alive = []               # also those of before the last reset()
        self.stopped = False
        if path:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.bind(path)
            self.sock.listen(512)
            self.port = None
        else:
            self.sock = net.listen_tcp(host, port)
            self.port = self.sock.getsockname()[1]
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        threading.Thread(target=self.accept_all, args=(self.sock,), daemon=True).start()

    @property
    def authority(self):
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self):
        return f"unix:{self.path}" if self.path else f"http://{self.authority}"

    # -- scripting

    def on(self, handler):
        with self.lock:
            self.handlers = [handler]
        return self

    def on_conns(self, *handlers):
        with self.lock:
            self.handlers = list(handlers)
        return self

    def on_raw(self, data, then=None, whole=True):
        return self.on(answer_raw(data, then, whole))

    def handler_of(self, conn):
        with self.lock:
            return self.handlers[min(conn.number, len(self.handlers) - 1)]

    # -- running

    def accept_all(self, sock):
        while True:
            try:
                peer, _ = sock.accept()
            except OSError:
                return
            with self.lock:
                conn = OriginConn(self, peer, len(self.conns))
                self.conns.append(conn)
                self.alive.append(conn)
            threading.Thread(target=self.serve, args=(conn,), daemon=True).start()

    def serve(self, conn):
        try:
            while not conn.closed:
                if not conn.buf:
                    conn.wait_readable()
                self.handler_of(conn)(conn)
        except Eof:
            pass
        except (BrokenPipeError, ConnectionResetError):
            conn.ended = conn.ended or "rst"
        except Exception as error:    # a script's own assertion, or a WireError
            if not (conn.closed and isinstance(error, OSError)):
                with self.lock:
                    self.errors.append(f"{self.name}: {error!r}\n{traceback.format_exc(limit=-3)}")
        finally:
            conn.done.set()
            conn.close()
            with self.lock:
                if conn in self.alive:
                    self.alive.remove(conn)

    def stop_listening(self):
        """New connections are refused; those that stand go on."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()

    def listen_again(self):
        self.sock = net.listen_tcp(self.host, self.port)
        threading.Thread(target=self.accept_all, args=(self.sock,), daemon=True).start()

    def reset(self):
        """Ends every connection and forgets what came. When it returns, culvert has noticed the end of
        those that were idle, so that the next request takes a new one."""
        with self.lock:
            conns = list(self.alive)
        for conn in conns:
            conn.released.set()
            try:
                conn.sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        for conn in conns:
            if not conn.done.wait(1.0):
                conn.rst()
        with self.lock:
            self.handlers = [answer_ok]
            self.conns = []
            self.requests = []
            errors, self.errors = self.errors, []
        return errors

    def close(self):
        self.stop_listening()
        with self.lock:
            conns = list(self.alive)
        for conn in conns:
            conn.close()

    # -- asserting

    @property
    def received(self):
        """All bytes of all connections."""
        with self.lock:
            return b"".join(bytes(c.received) for c in self.conns)

    def assert_untouched(self):
        """Not one byte came."""
        assert self.received == b"", f"bytes reached origin {self.name}: {self.received[:300]!r}"

    def wait_conns(self, n, timeout=10.0):
        net.wait_until(lambda: len(self.conns) >= n, timeout, f"{n} connections at origin {self.name}")
        return self.conns

    def wait_requests(self, n=1, timeout=10.0):
        net.wait_until(lambda: len(self.requests) >= n, timeout, f"{n} requests at origin {self.name}")
        return self.requests

    def wait_received(self, text, timeout=10.0):
        if isinstance(text, str):
            text = text.encode("latin-1")
        net.wait_until(lambda: text in self.received, timeout, f"{text!r} at origin {self.name}")

    @property
    def last(self):
        return self.requests[-1]
