"""A DNS server with programmable answers, on UDP and TCP of one loopback port.

    dns.a("name.test", "127.0.0.2", ttl=1)          fixed answers of one name
    dns.on("name.test", fn)                         fn(query message) -> response message, or None: silence
    dns.queries                                     (name, type) of every question, in order
    dns.peer                                        in a rule: who asks (None: by TCP); dns.udp.sendto() answers apart

Without a rule, every name below .test is 127.0.0.1, every other one does not exist.
"""

import socket
import struct
import threading

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

from . import net


def canonical(name):
    return name.rstrip(".").lower()


class DnsServer:
    def __init__(self, host="127.0.0.1", port=None):
        self.host = host
        self.lock = threading.Lock()
        self.reset()
        for _ in range(50):
            self.port = port or net.free_port(host)
            self.udp = socket.socket(net.family_of(host), socket.SOCK_DGRAM)
            self.tcp = None
            try:
                self.udp.bind((host, self.port))
                self.tcp = net.listen_tcp(host, self.port)
                break
            except OSError:
                self.udp.close()
        threading.Thread(target=self.serve_udp, daemon=True).start()
        threading.Thread(target=self.serve_tcp, daemon=True).start()

    def reset(self):
        with self.lock:
            self.rules = {}
            self.queries = []

    # -- programming

    def on(self, name, rule):
        with self.lock:
            self.rules[canonical(name)] = rule

    def a(self, name, *addresses, ttl=60):
        """Addresses of both families."""
        self.on(name, lambda query: answer(query, addresses, ttl))

    def rcode(self, name, code):
        """"NXDOMAIN", "SERVFAIL", ..."""
        self.on(name, lambda query: empty(query, dns.rcode.from_text(code)))

    def silent(self, name):
        self.on(name, lambda query: None)

    def count(self, name):
        with self.lock:
            return sum(1 for n, _ in self.queries if n == canonical(name))

    # -- serving

    def handle(self, wire, peer=None):
        self.peer = peer
        query = dns.message.from_wire(wire)
        question = query.question[0]
        name = canonical(question.name.to_text())
        with self.lock:
            self.queries.append((name, dns.rdatatype.to_text(question.rdtype)))
            rule = self.rules.get(name)
        if rule:
            reply = rule(query)
        elif name.endswith(".test"):
            reply = answer(query, ["127.0.0.1"], 60)
        else:
            reply = empty(query, dns.rcode.NXDOMAIN)
        if reply is None or isinstance(reply, bytes):
            return reply
        return reply.to_wire(max_size=65535)

    def serve_udp(self):
        while True:
            try:
                wire, peer = self.udp.recvfrom(4096)
                reply = self.handle(wire, peer)
                if reply is not None:
                    self.udp.sendto(reply, peer)
            except OSError:
                return
            except Exception:           # a query that is none
                continue

    def serve_tcp(self):
        while True:
            try:
                conn, _ = self.tcp.accept()
            except OSError:
                return
            threading.Thread(target=self.serve_tcp_conn, args=(conn,), daemon=True).start()

    def serve_tcp_conn(self, conn):
        with conn:
            conn.settimeout(10)
            try:
                file = conn.makefile("rb")
                while len(head := file.read(2)) == 2:
                    reply = self.handle(file.read(struct.unpack("!H", head)[0]))
                    if reply is None:
                        return
                    conn.sendall(struct.pack("!H", len(reply)) + reply)
            except OSError:
                pass

    def close(self):
        self.udp.close()
        try:
            self.tcp.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.tcp.close()


def empty(query, rcode=dns.rcode.NOERROR):
    reply = dns.message.make_response(query, recursion_available=True)
    reply.set_rcode(rcode)
    return reply


def answer(query, addresses, ttl=60):
    reply = empty(query)
    question = query.question[0]
    want_v6 = question.rdtype == dns.rdatatype.AAAA
    if question.rdtype in (dns.rdatatype.A, dns.rdatatype.AAAA):
        found = [a for a in addresses if (":" in a) == want_v6]
        if found:
            reply.answer.append(dns.rrset.from_text(question.name, ttl, "IN",
                                                    "AAAA" if want_v6 else "A", *found))
    return reply
