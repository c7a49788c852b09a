"""The two ways in. Most of HTTP/1 is the same through both listeners, so most tests run twice:

    def test_x(door): client = door.client(); client.send(door.head("POST", "/x", "Content-Length: 0"))
"""

import pytest


class Door:
    def __init__(self, rig, name):
        self.rig = rig
        self.name = name
        self.host = "web.test" if name == "web" else rig.a.authority

    def client(self, **options):
        return self.rig.client(self.name, **options)

    def target(self, path="/", origin=None):
        """The request target for a path of origin a: origin-form or absolute-form."""
        return path if self.name == "web" else f"http://{(origin or self.rig.a).authority}{path}"

    def head(self, method, path, *lines, host=True, version="HTTP/1.1"):
        """The bytes of a head. lines: str (latin-1) or bytes, without CR LF."""
        out = [f"{method} {self.target(path)} {version}".encode("latin-1")]
        if host:
            out.append(f"Host: {self.host}".encode())
        out += [line if isinstance(line, bytes) else line.encode("latin-1") for line in lines]
        return b"\r\n".join(out) + b"\r\n\r\n"

    def get(self, path="/", *lines):
        """One GET on a connection of its own."""
        client = self.client()
        answer = client.ask(self.head("GET", path, *lines))
        client.close()
        return answer

    def refused(self, raw, status=400, reason="http_request_error", method="GET"):
        """These bytes are refused, closed, logged, and nothing reaches an origin."""
        client = self.client()
        client.try_send(raw)
        return self.rig.refused(client, status, reason, method)

    def refused_body(self, raw, status=400, reason="http_request_error"):
        """A bad body: the head may have gone on, but no origin ever sees a whole request."""
        client = self.client()
        client.try_send(raw)
        answer = client.read_response()
        assert answer.status == status, answer
        assert "close" in answer.list("Connection"), answer.fields
        client.expect_closed()
        entry = self.rig.log.of(client)
        assert entry["status"] == status and entry["reason"].startswith(reason), str(entry)
        for conn in self.rig.a.conns:
            conn.wait_ended()
        assert not self.rig.a.requests, self.rig.a.requests
        assert b"smuggled" not in self.rig.a.received
        return answer, str(entry)


@pytest.fixture(params=["web", "fwd"])
def door(request, rig):
    return Door(rig, request.param)


@pytest.fixture
def web(rig):
    return Door(rig, "web")


@pytest.fixture
def fwd(rig):
    return Door(rig, "fwd")
