"""One culvert with its origins, its DNS server and the clients of a test.

The standard configuration has
    listener web    sites main (all hosts) and named (www.named.test, *.wild.test)
    listener fwd    forward, may reach loopback on the ports of the origins
    site main       /ping answered here, /old redirected, /admin 403, /b to upstream b,
                    /pair to both origins in turn, all else to upstream app (origin a)
    admin           metrics, readiness
and the DNS server answers every name below .test with 127.0.0.1.
"""

import copy

from .client import Client, request
from .culvert import Culvert, own_user
from .dnsd import DnsServer
from .origin import Origin


def route(prefix, upstream, **more):
    return {"match": {"prefix": prefix}, "upstream": upstream, **more}


def standard_conf(rig, port):
    """The standard configuration, a dict that a test may change before it is written."""
    main = [{"match": {"exact": "/ping"}, "respond": {"status": 200, "type": "text/plain", "body": "pong\n"}},
            {"match": {"exact": "/old"}, "redirect": {"to": "/new", "status": 308}},
            {"name": "admin", "match": {"prefix": "/admin"},
             "respond": {"status": 403, "type": "text/plain", "body": "no\n"}},
            route("/b", "b", name="b"), route("/pair", "pair", name="pair"),
            route("/", "app", name="rest")]
    named = [route("/", "b", name="named")]
    return {
        "workers": 1,
        "io": rig.io,
        **own_user(),
        "listeners": [
            {"name": "web", "bind": f"127.0.0.1:{port('web')}", "serve": "web"},
            {"name": "fwd", "bind": f"127.0.0.1:{port('fwd')}", "serve": "forward"}],
        "forward": {"allow_ports": [rig.a.port, rig.b.port], "deny_to_except": ["127.0.0.0/8"]},
        "sites": [{"name": "main", "hosts": ["*"], "routes": main},
                  {"name": "named", "hosts": ["www.named.test", "*.wild.test"], "routes": named}],
        "upstreams": {"app": {"servers": [rig.a.url]}, "b": {"servers": [rig.b.url]},
                      "pair": {"servers": [rig.a.url, rig.b.url]}},
        "resolver": {"servers": [f"127.0.0.1:{rig.dns.port}"]},
        "drain": {"delay": "0s", "deadline": "5s"},
        "access_log": {"to": "./access.log", "format": "json"},
        "log": {"to": "stderr", "level": "info"},
        "admin": {"bind": f"127.0.0.1:{port('admin')}"},
    }


class Rig:
    """change(conf, port): changes the standard configuration in place, or returns another.
    prepare(rig): runs before culvert starts. origin(name): makes an origin in another way."""

    def __init__(self, directory, io, change=None, origin=Origin, ready="admin", prepare=None,
                 **culvert_options):
        self.io = io
        self.a = origin("a")
        self.b = origin("b")
        self.dns = DnsServer()
        self.clients = []
        if prepare:
            prepare(self)

        def make(port):
            conf = copy.deepcopy(standard_conf(self, port))
            return (change(conf, port) or conf) if change else conf
        try:
            self.culvert = Culvert(directory, make, ready=ready, **culvert_options)
        except BaseException:
            self.close_peers()
            raise

    # -- words for tests

    @property
    def port(self):
        return self.culvert.port

    @property
    def log(self):
        return self.culvert.log

    def client(self, listener="web", **options):
        """A connection to a listener; closed at the end of the test."""
        mark = self.log.mark()
        client = Client(self.port[listener] if isinstance(listener, str) and listener in self.port else listener,
                        **options)
        client.log_mark = mark
        self.clients.append(client)
        return client

    def web(self, **options):
        return self.client("web", **options)

    def fwd(self, **options):
        return self.client("fwd", **options)

    def get(self, target="/", **options):
        """One GET through the web listener on a connection of its own."""
        client = self.web()
        answer = client.ask(request("GET", target, **options))
        client.close()
        return answer

    def metrics(self):
        return self.culvert.metrics()

    def refused(self, client, status, reason, method="GET"):
        """culvert itself answered with this status and closed, the log says why, no origin saw a byte."""
        answer = client.read_response(method)
        check_own_answer(answer, status)
        assert "close" in answer.list("Connection"), answer.fields
        client.expect_closed()
        entry = self.log.of(client)
        assert entry["status"] == status, str(entry)
        assert str(entry["reason"]).startswith(reason), str(entry)
        self.a.assert_untouched()
        self.b.assert_untouched()
        return answer, str(entry)

    # -- between tests and at the end

    def close_clients(self):
        for client in self.clients:
            client.close()
        self.clients = []

    def reset(self):
        """A fresh start for the next test on the same culvert; returns the errors of the scripts."""
        self.close_clients()
        errors = self.a.reset() + self.b.reset()
        self.dns.reset()
        return errors

    def close_peers(self):
        self.close_clients()
        self.a.close()
        self.b.close()
        self.dns.close()

    def stop(self):
        try:
            self.close_clients()
            if self.culvert.exit_code is None:
                self.culvert.check_sound()
            self.culvert.stop()
        finally:
            if self.culvert.exit_code is None:
                self.culvert.kill()
            self.close_peers()


def check_own_answer(answer, status):
    """An answer of culvert's own, as INTERFACE says it looks."""
    assert answer.status == status, f"{answer!r} {answer.fields} {answer.text[:300]}"
    assert "no-store" in answer.list("Cache-Control"), answer.fields
    assert answer.one("Proxy-Status", "").startswith("culvert"), answer.fields
