"""As much of RFC 6455 as an echo server and a raw client need."""

import base64
import hashlib
import os
import struct

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept_of(key):
    return base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()


def handshake(target="/", host="web.test", key="dGhlIHNhbXBsZSBub25jZQ==", extra=""):
    return (f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n{extra}\r\n").encode()


def frame(payload, opcode=1, masked=False):
    head = bytes([0x80 | opcode])
    mask_bit = 0x80 if masked else 0
    if len(payload) < 126:
        head += bytes([mask_bit | len(payload)])
    elif len(payload) < 65536:
        head += struct.pack("!BH", mask_bit | 126, len(payload))
    else:
        head += struct.pack("!BQ", mask_bit | 127, len(payload))
    if not masked:
        return head + payload
    mask = os.urandom(4)
    return head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload))


def read_frame(peer):
    """(opcode, payload) of one unfragmented frame."""
    first, second = peer.read_exactly(2)
    length = second & 0x7F
    if length == 126:
        length, = struct.unpack("!H", peer.read_exactly(2))
    elif length == 127:
        length, = struct.unpack("!Q", peer.read_exactly(8))
    mask = peer.read_exactly(4) if second & 0x80 else None
    payload = peer.read_exactly(length)
    if mask:
        payload = bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
    return first & 0x0F, payload


def accept(conn):
    """Answers a handshake with 101; returns the request."""
    req = conn.read_request()
    assert req.one("Upgrade", "").lower() == "websocket", req.fields
    assert "upgrade" in req.list("Connection"), req.fields
    conn.send(f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
              f"Sec-WebSocket-Accept: {accept_of(req.one('Sec-WebSocket-Key'))}\r\n\r\n")
    return req


def echo(conn):
    """A script for an origin: echoes frames until a close frame, which it answers."""
    accept(conn)
    while True:
        opcode, payload = read_frame(conn)
        conn.send(frame(payload, opcode))
        if opcode == 8:
            conn.close()
            return
