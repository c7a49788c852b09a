"""The client side of a test: raw bytes out, exactly one answer in."""

import socket
import threading

from .http import Eof, Peer, Reset, Response, WireError, body_length, parse_head
from . import net


class Client(Peer):
    """A connection to a listener. to: a port, (host, port), or the path of a Unix socket."""

    def __init__(self, to, timeout=10.0, source=None, rcvbuf=None, sndbuf=None):
        if isinstance(to, int):
            to = ("127.0.0.1", to)
        family = socket.AF_UNIX if isinstance(to, str) else net.family_of(to[0])
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        if rcvbuf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        if sndbuf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, sndbuf)
        if source:
            sock.bind(source)
        sock.connect(to)
        super().__init__(sock, timeout)
        self.to = to
        self.port = sock.getsockname()[1] if family != socket.AF_UNIX else None

    def try_send(self, data):
        """Sends; the other side may already have ended."""
        try:
            self.send(data)
        except OSError:
            pass
        return self

    def send_behind(self, data):
        """Sends in a thread of its own, as far as the other side takes it; returns the thread."""
        thread = threading.Thread(target=self.try_send, args=(data,), daemon=True)
        thread.start()
        return thread

    def send_split(self, data, at):
        """Sends data in two parts; the second only when culvert has read the first."""
        if isinstance(data, str):
            data = data.encode("latin-1")
        self.send(data[:at])
        net.wait_consumed(self.to[1], self.port)
        return self.send(data[at:])

    def read_head(self):
        return parse_head(self.read_until(b"\r\n\r\n"), Response)

    def read_final_head(self):
        """The head of the final answer, with the interim ones in .interims."""
        interims = []
        while True:
            head = self.read_head()
            if head.status >= 200 or head.status == 101:
                head.interims = interims
                return head
            if head.has("Content-Length") or head.has("Transfer-Encoding"):
                raise WireError("an interim answer with framing fields")
            interims.append(head)

    def read_response(self, method="GET", sink=None):
        """One answer, whole. A cut one raises Eof; its part is in error.response."""
        response = self.read_final_head()
        try:
            self.read_response_body(response, method, sink)
        except Eof as error:
            error.response = response
            raise
        response.complete = True
        return response

    def read_response_body(self, response, method, sink=None):
        length = body_length(response)
        if method == "CONNECT" and 200 <= response.status < 300:
            if length != -1:
                raise WireError("framing fields in the answer to CONNECT")
            return
        if response.status in (101, 204):
            if length != -1:
                raise WireError(f"framing fields in {response.status}")
            return
        if method == "HEAD" or response.status == 304:
            return
        if length is None:
            response.framing = "chunked"
            response.body = self.read_chunked(response, sink)
        elif length >= 0:
            response.framing = "length"
            response.body = self.read_partial(length, response, sink)
        else:
            response.framing = "close"
            response.body = self.read_to_end(sink)

    def read_partial(self, length, response, sink):
        try:
            return self.read_exactly(length, sink)
        except Eof:
            response.body = bytes(self.buf)
            raise

    def ask(self, data, method="GET", sink=None):
        """Sends one request and reads its answer."""
        return self.send(data).read_response(method, sink)

    def read_cut(self, method="GET"):
        """An answer that must be cut visibly: returns its part; a whole one fails the test."""
        response = self.read_final_head()
        try:
            self.read_response_body(response, method)
        except Eof:
            return response
        if response.framing == "close":
            raise AssertionError("a close-delimited answer that ended with FIN: the cut is invisible")
        raise AssertionError(f"not cut: {response!r}")

    def connect(self, authority, extra="", early=b""):
        """CONNECT; returns the answer."""
        self.send(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{extra}\r\n".encode("latin-1") + early)
        return self.read_response("CONNECT")


def request(method="GET", target="/", host="web.test", fields=(), body=None, version="HTTP/1.1"):
    """The bytes of a plain request. fields: lines without CR LF, or (name, value)."""
    lines = [f"{method} {target} {version}"]
    if host is not None:
        lines.append(f"Host: {host}")
    lines += [f if isinstance(f, str) else f"{f[0]}: {f[1]}" for f in fields]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + (body or b"")


def chunked(*parts, trailers=(), last=True):
    """The bytes of a chunked body."""
    out = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts if p)
    if last:
        out += b"0\r\n" + b"".join(t.encode("latin-1") + b"\r\n" for t in trailers) + b"\r\n"
    return out


__all__ = ["Client", "Eof", "Reset", "request", "chunked"]
