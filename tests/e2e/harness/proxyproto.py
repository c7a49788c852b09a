"""Bytes of the PROXY protocol, versions 1 and 2 (proxy-protocol.txt, section 2)."""

import socket
import struct

V2_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
LOCAL, PROXY = 0, 1
CRC32C, NOOP = 0x03, 0x04


def v1(src="192.0.2.1", dst="192.0.2.2", sport=1111, dport=80):
    family = "TCP6" if ":" in src else "TCP4"
    return f"PROXY {family} {src} {dst} {sport} {dport}\r\n".encode()


def tlv(kind, value):
    return struct.pack("!BH", kind, len(value)) + value


def v2_raw(command=PROXY, family=0x11, payload=b"", length=None, version=2):
    """Any header: family 0x11 is TCP over IPv4, 0x21 over IPv6, 0x31 a Unix stream."""
    return V2_SIGNATURE + struct.pack("!BBH", version << 4 | command, family,
                                      len(payload) if length is None else length) + payload


def v2_addresses(src, dst, sport, dport):
    family = socket.AF_INET6 if ":" in src else socket.AF_INET
    return socket.inet_pton(family, src) + socket.inet_pton(family, dst) + struct.pack("!HH", sport, dport)


def v2(src="192.0.2.1", dst="192.0.2.2", sport=1111, dport=80, tlvs=b"", crc=False):
    """A whole header; crc: with a right checksum TLV."""
    family = 0x21 if ":" in src else 0x11
    payload = v2_addresses(src, dst, sport, dport) + tlvs
    if not crc:
        return v2_raw(PROXY, family, payload)
    blank = v2_raw(PROXY, family, payload + tlv(CRC32C, b"\0\0\0\0"))
    return blank[:-4] + struct.pack("!I", crc32c(blank))


def v2_local(payload=b""):
    return v2_raw(LOCAL, 0x00, payload)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
