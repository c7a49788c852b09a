"""Strict HTTP/1.1 over one socket.

Peer is a socket with a read buffer; Message is a parsed head with its body. The reader accepts
only what a careful sender generates (RFC 9112): CR LF, token names, no folding, one framing,
no chunk extensions. Anything else is a WireError, and fails the test.
"""

import re
import select
import socket

from . import net

TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
DIGITS = re.compile(r"[0-9]+\Z")
RECORD_MAX = 4 << 20
TIMEOUT = 10.0


class WireError(AssertionError):
    """The other side wrote something that it must not write."""


class Eof(Exception):
    """The other side ended (FIN) before what was expected was there."""


class Reset(Eof):
    """The other side ended with RST."""


class Message:
    """A request or an answer. Names keep their case; look-ups ignore it."""

    def __init__(self, start, fields, raw_head):
        self.start = start
        self.fields = fields
        self.raw_head = raw_head
        self.body = b""
        self.trailers = []
        self.interims = []
        self.framing = "none"        # none | length | chunked | close
        self.chunks = 0
        self.complete = False

    def all(self, name):
        return [v for n, v in self.fields if n.lower() == name.lower()]

    def one(self, name, default=None):
        """The only value of a field that may stand once; default if it is absent."""
        values = self.all(name)
        if len(values) > 1:
            raise WireError(f"{name} stands {len(values)} times: {values}")
        return values[0] if values else default

    def list(self, name):
        """All members of a comma-separated list field, lower case."""
        return [m.strip().lower() for v in self.all(name) for m in v.split(",") if m.strip()]

    def has(self, name):
        return bool(self.all(name))

    def trailer(self, name):
        return [v for n, v in self.trailers if n.lower() == name.lower()]

    @property
    def names(self):
        return [n.lower() for n, _ in self.fields]

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")


class Request(Message):
    @property
    def method(self):
        return self.start.split(" ")[0]

    @property
    def target(self):
        return self.start.split(" ")[1]

    @property
    def version(self):
        return self.start.split(" ")[2]

    def __repr__(self):
        return f"<{self.start} {self.framing} {len(self.body)} bytes>"


class Response(Message):
    @property
    def version(self):
        return self.start.split(" ")[0]

    @property
    def status(self):
        return int(self.start.split(" ")[1])

    @property
    def reason(self):
        return self.start.split(" ", 2)[2]

    def __repr__(self):
        return f"<{self.start} {self.framing} {len(self.body)} bytes>"


def parse_fields(block):
    fields = []
    for line in block:
        name, colon, value = line.partition(b":")
        if not colon or not TOKEN.match(name):
            raise WireError(f"bad field line {line!r}")
        if any(c < 32 and c != 9 or c == 127 for c in value):
            raise WireError(f"control character in {line!r}")
        fields.append((name.decode("ascii"), value.strip(b" \t").decode("latin-1")))
    return fields


def parse_head(raw, kind):
    """raw: a whole head with its empty line."""
    lines = raw[:-4].split(b"\r\n")
    for line in lines:
        if b"\r" in line or b"\n" in line:
            raise WireError(f"bare CR or LF in {line!r}")
    start = lines[0].decode("latin-1")
    pattern = r"\S+ \S+ HTTP/1\.[01]\Z" if kind is Request else r"HTTP/1\.[01] [1-9]\d\d [^\r\n]*\Z"
    if not re.match(pattern, start):
        raise WireError(f"bad start line {start!r}")
    return kind(start, parse_fields(lines[1:]), raw)


def body_length(message):
    """None: chunked. A number: Content-Length. -1: neither."""
    coding = message.all("Transfer-Encoding")
    length = message.all("Content-Length")
    if coding:
        if length or [c.lower() for c in coding] != ["chunked"]:
            raise WireError(f"framing {coding} {length} in {message.start!r}")
        if message.version == "HTTP/1.0":
            raise WireError("Transfer-Encoding in HTTP/1.0")
        return None
    if length:
        if len(length) != 1 or not DIGITS.match(length[0]):
            raise WireError(f"Content-Length {length} in {message.start!r}")
        return int(length[0])
    return -1


class Peer:
    """One connection, seen from a test."""

    def __init__(self, sock, timeout=TIMEOUT):
        sock.settimeout(timeout)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.buf = bytearray()
        self.received = bytearray()   # every byte, up to RECORD_MAX
        self.received_total = 0
        self.sent_total = 0
        self.closed = False
        self.ended = None             # how the other side ended: None | "fin" | "rst"

    # -- writing

    def send(self, data):
        if isinstance(data, str):
            data = data.encode("latin-1")
        self.sock.sendall(data)
        self.sent_total += len(data)
        return self

    def half_close(self):
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass            # the other side has reset it: reading will tell
        return self

    def close(self):
        if not self.closed:
            self.closed = True
            # Other threads may hang in recv(): wake them.
            try:
                self.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self.sock.close()

    def rst(self):
        """Ends with RST: also what was sent and not yet read over there is lost or not, as it happens."""
        if not self.closed:
            self.closed = True
            net.linger_zero(self.sock)
            if self.sock.family != socket.AF_UNIX:
                net.reset_now(self.sock)
            try:
                self.sock.shutdown(socket.SHUT_RD)
            except OSError:
                pass
            self.sock.close()

    # -- reading

    def readable(self, timeout=0):
        if self.buf:
            return True
        try:
            return bool(select.select([self.sock], [], [], timeout)[0])
        except (ValueError, OSError):
            return True

    def fill(self):
        """Reads more bytes into the buffer; raises Eof or Reset at the end, TimeoutError."""
        try:
            data = self.sock.recv(262144)
        except ConnectionResetError as error:
            self.ended = "rst"
            raise Reset(f"RST after {bytes(self.buf[:200])!r}") from error
        except OSError as error:
            if isinstance(error, (TimeoutError, socket.timeout)):
                raise AssertionError(f"nothing came within the time limit, after {bytes(self.buf[:300])!r}") \
                    from error
            if self.closed:
                raise Eof("closed by the test") from error
            raise
        if not data:
            self.ended = "fin"
            raise Eof(f"FIN after {bytes(self.buf[:200])!r}")
        self.received_total += len(data)
        if len(self.received) < RECORD_MAX:
            self.received += data[:RECORD_MAX - len(self.received)]
        self.buf += data

    def take(self, n):
        data = bytes(self.buf[:n])
        del self.buf[:n]
        return data

    def read_exactly(self, n, sink=None):
        """n bytes; with a sink (anything with update()) they go there and b"" is returned."""
        if sink is None:
            while len(self.buf) < n:
                self.fill()
            return self.take(n)
        left = n
        while left:
            if not self.buf:
                self.fill()
            part = self.take(min(left, len(self.buf)))
            sink.update(part)
            left -= len(part)
        return b""

    def read_until(self, mark, limit=1 << 20):
        start = 0
        while (at := self.buf.find(mark, start)) < 0:
            if len(self.buf) > limit:
                raise WireError(f"no {mark!r} within {limit} bytes")
            start = max(0, len(self.buf) - len(mark) + 1)
            self.fill()
        return self.take(at + len(mark))

    def read_line(self):
        line = self.read_until(b"\r\n")[:-2]
        if b"\n" in line or b"\r" in line:
            raise WireError(f"bare CR or LF in {line!r}")
        return line

    def read_to_end(self, sink=None):
        """Everything up to FIN; Reset is raised."""
        data = bytearray()
        while True:
            part = self.take(len(self.buf))
            if sink is None:
                data += part
            else:
                sink.update(part)
            try:
                self.fill()
            except Reset:
                raise
            except Eof:
                return bytes(data)

    def read_chunked(self, message, sink=None):
        body = bytearray()
        while True:
            line = self.read_line()
            if not re.match(rb"[0-9A-Fa-f]{1,16}\Z", line):
                raise WireError(f"chunk size line {line!r}")
            size = int(line, 16)
            if size == 0:
                break
            message.chunks += 1
            body += self.read_exactly(size, sink)
            message.body = body
            if self.read_exactly(2) != b"\r\n":
                raise WireError("no CR LF after chunk data")
        lines = []
        while line := self.read_line():
            lines.append(line)
        message.trailers = parse_fields(lines)
        return bytes(body)

    # -- the end of the connection

    def expect_eof(self):
        """The other side ends with FIN, and nothing came before it."""
        try:
            rest = self.read_to_end()
        except Reset:
            raise AssertionError("RST instead of FIN") from None
        assert not rest, f"bytes before the end: {rest[:300]!r}"

    def expect_closed(self):
        """The other side ends, with FIN or RST, and nothing came before it."""
        try:
            rest = self.read_to_end()
        except Reset:
            rest = b""
        assert not rest, f"bytes before the end: {rest[:300]!r}"

    def expect_rst(self):
        try:
            rest = self.read_to_end()
        except Reset:
            return
        raise AssertionError(f"FIN instead of RST, after {rest[:300]!r}")

    def drain_to_close(self):
        """All bytes up to FIN or RST, and which of the two it was."""
        data = bytearray()
        while True:
            data += self.take(len(self.buf))
            try:
                self.fill()
            except Reset:
                return bytes(data), "rst"
            except Eof:
                return bytes(data), "fin"

    def is_open(self):
        """Nothing has come and nothing has ended, right now."""
        return not self.readable(0)
