"""max_connections: never one more than that, over all shards; requests beyond wait in order, for a while.

The origin counts, at each connection it accepts, how many of its connections are established in the
kernel's eyes at one moment: one that culvert has closed before it opened the next is not.
"""

import os
import shutil
import socket
import tempfile
import threading
import time

import pytest

from harness import websocket
from harness.client import request
from harness.fixtures import shared_rig
from harness.net import wait_until
from harness.origin import Origin, answer_ok
from harness.rig import check_own_answer

ESTABLISHED = 1


def established(conn):
    try:
        return conn.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED
    except OSError:
        return False


class Counting(Origin):
    """Remembers the largest number of connections that were open at one moment."""

    most = 0

    def serve(self, conn):
        with self.lock:
            known = list(self.alive)
        now = sum(established(c) for c in known)    # each was open when conn had been accepted
        with self.lock:
            self.most = max(self.most, now)
        super().serve(conn)

    def reset(self):
        errors = super().reset()
        self.most = 0
        return errors

    def open_now(self):
        with self.lock:
            return sum(established(c) for c in self.alive)


def limited(n, workers=1, **more):
    """A configuration: upstream app, and pair of two servers, n connections each."""
    def change(conf, port):
        conf["workers"] = workers
        for name in ("app", "pair"):
            urls = conf["upstreams"][name]["servers"]
            conf["upstreams"][name]["servers"] = [{"url": url, "max_connections": n} for url in urls]
        conf["timeouts"] = {"queue": "20s"}
        conf.update(more)
    return change


one = shared_rig(limited(1), origin=Counting)
three = shared_rig(limited(3), origin=Counting)
two_shards = shared_rig(limited(3, workers=2), origin=Counting)
one_of_two = shared_rig(limited(1, workers=2), origin=Counting)
hasty = shared_rig(limited(1, timeouts={"queue": "300ms"}), origin=Counting)


class Gate:
    """A script: answers are held until they are let go, in order of arrival."""

    def __init__(self):
        self.waiting = threading.Semaphore(0)

    def __call__(self, conn):
        conn.read_request()
        assert self.waiting.acquire(timeout=30)
        conn.respond(200, f"{conn.origin.name} {conn.requests[-1].target}\n")

    def let(self, n=1):
        for _ in range(n):
            self.waiting.release()


def queued(rig, n, upstream="app"):
    rig.culvert.wait_metric(lambda m: m.value("culvert_upstream_queued_requests", upstream=upstream) == n,
                            f"{n} requests wait")


def on_shard(rig, shard):
    """A client connection that this shard serves."""
    for _ in range(200):
        client = rig.web()
        client.ask(request("GET", "/ping"))
        if rig.log.of(client)["shard"] == shard:
            client.log_mark = rig.log.mark()
            return client
        client.close()
    raise AssertionError(f"no connection came to shard {shard}")


# -- the limit

def hammer(rig, n_clients, n_requests, target="/"):
    """Every client asks so many times; all get 200."""
    wrong = []

    def run(client):
        try:
            for _ in range(n_requests):
                answer = client.ask(request("GET", target))
                if answer.status != 200:
                    wrong.append(answer.status)
        except Exception as error:      # also the end of the connection
            wrong.append(error)
    threads = [threading.Thread(target=run, args=(rig.web(timeout=30),)) for _ in range(n_clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(50)
    assert not wrong, wrong[:5]


def test_never_more_than_the_limit(three):
    hammer(three, 24, 20)
    assert three.a.most == 3
    assert len(three.a.requests) == 24 * 20
    assert len(three.a.conns) == 3, "kept, and handed from request to request"
    queued(three, 0)


@pytest.mark.multishard
def test_never_more_over_two_shards(two_shards):
    """Connections are reused, given up for the other shard, closed by the server."""
    def script(conn):
        answer_ok(conn)
        if len(conn.requests) >= 7:
            conn.half_close()
            conn.wait_end()
    two_shards.a.on(script)
    hammer(two_shards, 24, 20)
    assert two_shards.a.most <= 3
    assert len(two_shards.a.requests) == 24 * 20
    queued(two_shards, 0)


@pytest.mark.multishard
def test_never_more_when_every_connection_ends(two_shards):
    """`Connection: close`: each request needs a place of its own, and gets it when one is free."""
    def once(conn):
        conn.read_request()
        conn.send("HTTP/1.1 200 X\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        conn.wait_end()
    two_shards.a.on(once)
    hammer(two_shards, 16, 15)
    assert two_shards.a.most <= 3
    assert len(two_shards.a.conns) == 16 * 15


@pytest.mark.multishard
def test_never_more_while_clients_abort(two_shards):
    """The connection of an aborted request is reset; only then its place is free."""
    two_shards.a.on(lambda conn: answer_ok(conn) if b"/good" in conn.peek_head() else conn.wait_end())
    for _ in range(30):
        clients = [two_shards.web() for _ in range(5)]
        for client in clients:
            client.send(request("GET", "/never"))
        two_shards.a.wait_conns(1)
        for client in clients:
            client.rst()
    assert two_shards.get("/good").status == 200
    assert two_shards.a.most <= 3
    queued(two_shards, 0)


def test_both_servers_have_their_own_limit(one):
    gate = Gate()
    one.a.on(gate)
    one.b.on(gate)
    clients = [one.web() for _ in range(5)]
    for client in clients:
        client.send(request("GET", "/pair"))
    queued(one, 3, "pair")
    assert len(one.a.wait_requests(1)) == len(one.b.wait_requests(1)) == 1
    gate.let(5)
    answers = [client.read_response().text[0] for client in clients]
    assert {"a", "b"} == set(answers)
    assert one.a.most == one.b.most == 1


# -- the queue

def test_first_come_first_served(one):
    gate = Gate()
    one.a.on(gate)
    clients = []
    for i in range(8):
        clients.append(one.web())
        clients[-1].send(request("GET", f"/{i}"))
        if i:
            queued(one, i)
        else:
            one.a.wait_requests(1)
    gate.let(8)
    for i, client in enumerate(clients):
        assert client.read_response().text == f"a /{i}\n"
    assert [r.target for r in one.a.requests] == [f"/{i}" for i in range(8)]
    assert len(one.a.conns) == 1


def test_queue_ms_is_the_time_waited(one):
    gate = Gate()
    one.a.on(gate)
    first, second = one.web(), one.web()
    first.send(request("GET", "/first"))
    one.a.wait_requests(1)
    second.send(request("GET", "/second"))
    queued(one, 1)
    began = time.monotonic()
    time.sleep(0.2)
    gate.let()
    first.read_response()
    one.a.wait_requests(2)
    waited = (time.monotonic() - began) * 1000
    gate.let()
    second.read_response()
    assert one.log.of(first)["queue_ms"] == 0
    entry = one.log.of(second)
    assert 195 <= entry["queue_ms"] <= waited + 100, str(entry)
    assert entry["queue_ms"] <= entry["total_ms"] and entry["reused"] is True
    assert entry["upstream"] == "app" and entry["attempts"] == 1


def test_a_wait_that_is_too_long(hasty):
    gate = Gate()
    hasty.a.on(gate)
    first, second = hasty.web(), hasty.web()
    first.send(request("GET", "/first"))
    hasty.a.wait_requests(1)
    answer = second.ask(request("GET", "/second"))
    check_own_answer(answer, 503)
    assert int(answer.one("Retry-After")) >= 1
    assert "error=connection_limit_reached" in answer.one("Proxy-Status")
    entry = hasty.log.of(second)
    assert entry["status"] == 503 and entry["reason"] == "queue_timeout", str(entry)
    assert 295 <= entry["queue_ms"] < 5000 and entry["attempts"] == 0, str(entry)
    assert hasty.metrics().value("culvert_ends_total", reason="queue_timeout") >= 1
    gate.let(2)
    assert first.read_response().status == 200
    assert second.ask(request("GET", "/third")).text == "a /third\n", "the connection stays"
    assert len(hasty.a.requests) == 2


def test_o14_abort_while_queued(one):
    """It leaves at once, and the server never hears of it."""
    gate = Gate()
    one.a.on(gate)
    clients = [one.web() for _ in range(3)]
    for i, client in enumerate(clients):
        client.send(request("GET", f"/{i}"))
        if i:
            queued(one, i)
        else:
            one.a.wait_requests(1)
    clients[1].rst()
    queued(one, 1)
    entry = one.log.of(clients[1])
    assert entry["status"] == 499 and entry["reason"] == "client_abort", str(entry)
    assert entry["queue_ms"] > 0
    gate.let(2)
    assert clients[0].read_response().text == "a /0\n"
    assert clients[2].read_response().text == "a /2\n"
    assert [r.target for r in one.a.requests] == ["/0", "/2"]


def test_half_close_while_queued(one):
    """FIN behind a whole request: it goes on waiting, and is answered."""
    gate = Gate()
    one.a.on(gate)
    first, second = one.web(), one.web()
    first.send(request("GET", "/0"))
    one.a.wait_requests(1)
    second.send(request("GET", "/1"))
    queued(one, 1)
    second.half_close()
    gate.let(2)
    assert first.read_response().status == 200
    assert second.read_response().text == "a /1\n"


def test_body_waits_with_its_request(one):
    """Of a large body no more is read than one pipe holds; then it goes whole."""
    gate = Gate()
    one.a.on(gate)
    first, second = one.web(), one.web()
    first.send(request("GET", "/0"))
    one.a.wait_requests(1)
    body = bytes(range(256)) * 8192
    second.send_behind(request("POST", "/1", body=body))
    queued(one, 1)
    gate.let(2)
    assert first.read_response().status == 200
    assert second.read_response().status == 200
    assert one.a.last.body == body


def test_drain_serves_the_queue(make_rig):
    rig = make_rig(limited(1), origin=Counting)
    gate = Gate()
    rig.a.on(gate)
    clients = [rig.web() for _ in range(4)]
    for i, client in enumerate(clients):
        client.send(request("GET", f"/{i}"))
        if i:
            queued(rig, i)
        else:
            rig.a.wait_requests(1)
    rig.culvert.signal(15)
    wait_until(lambda: rig.culvert.admin_get("/readyz").status == 503, what="it drains")
    gate.let(4)
    for i, client in enumerate(clients):
        answer = client.read_response()
        assert answer.status == 200 and answer.text == f"a /{i}\n"
    assert rig.culvert.wait_exit() == 0
    assert rig.a.most == 1


# -- what holds a place

def test_tunnel_holds_its_place(one):
    one.a.on_conns(websocket.echo, answer_ok)
    tunnel = one.web()
    tunnel.send(websocket.handshake())
    assert tunnel.read_response().status == 101
    client = one.web()
    client.send(request("GET", "/next"))
    queued(one, 1)
    tunnel.send(websocket.frame(b"still", masked=True))
    assert websocket.read_frame(tunnel) == (1, b"still")
    assert len(one.a.conns) == 1
    tunnel.send(websocket.frame(b"", 8, masked=True))
    tunnel.half_close()
    assert client.read_response().status == 200
    assert one.a.most == 1


def test_answer_that_is_cut_gives_its_place_back(one):
    seen = threading.Event()

    def script(conn):
        conn.read_request()
        conn.send("HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\nab")
        seen.wait(20)
        conn.rst()
    one.a.on_conns(script, answer_ok)
    first, second = one.web(), one.web()
    first.send(request("GET", "/0"))
    assert first.read_final_head().status == 200
    seen.set()
    first.drain_to_close()
    assert second.ask(request("GET", "/1")).status == 200
    assert one.a.most == 1


def test_dead_pooled_connection_is_replaced(one):
    """The silent repetition needs a place, too: that of the connection that died."""
    def once(conn):
        answer_ok(conn)
        conn.peek_head()
        conn.rst()
    one.a.on_conns(once, answer_ok)
    client = one.web()
    assert client.ask(request("GET", "/0")).status == 200
    assert client.ask(request("GET", "/1")).status == 200
    assert [r.target for r in one.a.requests] == ["/0", "/1"]
    assert one.a.most == 1


def test_post_does_not_take_what_was_idle_for_long(one):
    """That connection is closed for it."""
    client = one.web()
    assert client.ask(request("GET", "/0")).status == 200
    time.sleep(2.1)
    assert client.ask(request("POST", "/1", body=b"x")).status == 200
    assert len(one.a.conns) == 2 and one.a.most == 1


# -- two shards

@pytest.mark.multishard
def test_parked_in_the_other_shard(one_of_two):
    """An idle connection of one shard is given up for a request of the other."""
    for i in range(6):
        client = on_shard(one_of_two, i % 2)
        assert client.ask(request("GET", f"/{i}")).status == 200
        assert one_of_two.log.of(client)["shard"] == i % 2
    assert one_of_two.a.most == 1
    assert len(one_of_two.a.conns) == 6


@pytest.mark.multishard
def test_busy_in_the_other_shard(one_of_two):
    """It waits while the other one uses the only connection, and gets the place then."""
    gate = Gate()
    one_of_two.a.on(gate)
    left, right = on_shard(one_of_two, 0), on_shard(one_of_two, 1)
    left.send(request("GET", "/left"))
    one_of_two.a.wait_requests(1)
    right.send(request("GET", "/right"))
    queued(one_of_two, 1)
    gate.let(2)
    assert left.read_response().text == "a /left\n"
    assert right.read_response().text == "a /right\n"
    assert one_of_two.a.most == 1


@pytest.mark.multishard
def test_two_shards_share_one_place(one_of_two):
    """Both have more than enough to do all the time; neither starves."""
    stop = threading.Event()
    done = {0: 0, 1: 0}
    longest = {0: 0.0, 1: 0.0}
    wrong = []

    def run(shard, client):
        try:
            while not stop.is_set():
                began = time.monotonic()
                answer = client.ask(request("GET", f"/{shard}"))
                longest[shard] = max(longest[shard], time.monotonic() - began)
                if answer.status != 200:
                    wrong.append(answer.status)
                done[shard] += 1
        except Exception as error:
            wrong.append(error)
    clients = [(shard, on_shard(one_of_two, shard)) for shard in (0, 1) for _ in range(6)]
    threads = [threading.Thread(target=run, args=each) for each in clients]
    for thread in threads:
        thread.start()
    wait_until(lambda: wrong or min(done.values()) >= 100, 40, "100 requests of each shard")
    stop.set()
    for thread in threads:
        thread.join(30)
    assert not wrong, wrong[:5]
    assert max(longest.values()) < 10, longest
    assert one_of_two.a.most == 1
    assert len(one_of_two.a.conns) < len(one_of_two.a.requests) / 2, "not a connection for each request"


@pytest.mark.multishard
def test_waiters_leave_on_both_shards(one_of_two):
    """A place granted to a shard whose client has gone goes on to the other."""
    gate = Gate()
    one_of_two.a.on(gate)
    left, right = on_shard(one_of_two, 0), on_shard(one_of_two, 1)
    for i in range(20):
        holder = on_shard(one_of_two, i % 2)
        holder.send(request("GET", "/holder"))
        one_of_two.a.wait_requests(3 * i + 1 - i)
        quitter = on_shard(one_of_two, 1 - i % 2)
        quitter.send(request("GET", "/quitter"))
        queued(one_of_two, 1)
        left.send(request("GET", "/left"))
        queued(one_of_two, 2)
        quitter.rst()
        gate.let(2)
        assert holder.read_response().status == 200
        assert left.read_response().text == "a /left\n"
        queued(one_of_two, 0)
        left, right = right, left
    assert one_of_two.a.most == 1


# -- which servers count

def test_ejected_server_is_not_waited_for(make_rig):
    """b refuses and is left out: requests wait for a, although b has places."""
    def change(conf, port):
        limited(1)(conf, port)
        conf["upstreams"]["pair"]["eject"] = {"failures": 1, "time": "60s"}
    rig = make_rig(change, origin=Counting, prepare=lambda r: r.b.stop_listening())
    while rig.metrics().value("culvert_upstream_server_up", upstream="pair", server=rig.b.url):
        assert rig.get("/pair").one("X-Origin") == "a"
    gate = Gate()
    rig.a.on(gate)
    rig.b.listen_again()
    clients = [rig.web() for _ in range(3)]
    for i, client in enumerate(clients):
        client.send(request("GET", f"/pair/{i}"))
        if i:
            queued(rig, i, "pair")
        else:
            wait_until(lambda: rig.a.requests[-1].target == "/pair/0", what="the first at a")
    gate.let(3)
    assert [client.read_response().text for client in clients] == [f"a /pair/{i}\n" for i in range(3)]
    assert rig.a.most == 1 and not rig.b.requests


def test_the_end_of_an_ejection_lets_waiters_go(make_rig):
    """While a is busy, b comes back: who waits goes there without waiting for a."""
    def change(conf, port):
        limited(1)(conf, port)
        conf["upstreams"]["pair"]["eject"] = {"failures": 1, "time": "1s"}
    rig = make_rig(change, origin=Counting, prepare=lambda r: r.b.stop_listening())
    gate = Gate()
    rig.a.on(gate)
    gate.let(2)
    while rig.metrics().value("culvert_upstream_server_up", upstream="pair", server=rig.b.url):
        assert rig.get("/pair").text[0] == "a"
        gate.let()
    while gate.waiting.acquire(blocking=False):
        pass
    rig.b.listen_again()
    seen = len(rig.a.requests)
    first, second = rig.web(), rig.web()
    first.send(request("GET", "/pair"))
    rig.a.wait_requests(seen + 1)
    second.send(request("GET", "/pair"))
    assert second.read_response().one("X-Origin") == "b"
    gate.let()
    assert first.read_response().status == 200


def test_retry_respects_the_limit(make_rig):
    """b refuses: its requests try a next, and wait there; a never has more than one."""
    def change(conf, port):
        limited(1)(conf, port)
        conf["upstreams"]["pair"]["eject"] = {"failures": "off"}
    rig = make_rig(change, origin=Counting, prepare=lambda r: r.b.stop_listening())
    gate = Gate()
    rig.a.on(gate)
    clients = [rig.web() for _ in range(6)]
    for client in clients:
        client.send(request("GET", "/pair"))
    queued(rig, 5, "pair")
    gate.let(6)
    assert [client.read_response().status for client in clients] == [200] * 6
    assert rig.a.most == 1


def test_no_limit_beside_a_limit(make_rig):
    """One server of two has none: nobody ever waits."""
    def change(conf, port):
        servers = conf["upstreams"]["pair"]["servers"]
        conf["upstreams"]["pair"]["servers"] = [{"url": servers[0], "max_connections": 1}, servers[1]]
    rig = make_rig(change, origin=Counting)
    gate = Gate()
    rig.a.on(gate)
    rig.b.on(gate)
    clients = [rig.web() for _ in range(8)]
    for client in clients:
        client.send(request("GET", "/pair"))
    wait_until(lambda: len(rig.a.requests) + len(rig.b.requests) == 8, what="all have been sent")
    assert len(rig.a.requests) == 1
    gate.let(8)
    assert [client.read_response().status for client in clients] == [200] * 8


def test_unix_server_has_a_limit(make_rig):
    folder = tempfile.mkdtemp(prefix="culvert-e2e-")
    os.chmod(folder, 0o755)
    origin = Origin("u", path=f"{folder}/u.sock")
    os.chmod(origin.path, 0o777)

    def change(conf, port):
        conf["upstreams"]["app"]["servers"] = [{"url": origin.url, "max_connections": 2}]
    rig = make_rig(change)
    gate = Gate()
    origin.on(gate)
    clients = [rig.web() for _ in range(6)]
    for client in clients:
        client.send(request("GET", "/"))
    queued(rig, 4)
    assert len(origin.wait_conns(2)) == 2
    gate.let(6)
    assert [client.read_response().status for client in clients] == [200] * 6
    assert len(origin.conns) == 2
    origin.close()
    shutil.rmtree(folder)


def test_name_with_a_dead_address_keeps_to_the_limit(make_rig):
    """One address after the other: the second is tried when the first has failed."""
    def change(conf, port):
        url = conf["upstreams"]["app"]["servers"][0]
        number = url.rsplit(":", 1)[1]
        conf["upstreams"]["app"]["servers"] = [{"url": f"http://two.test:{number}", "max_connections": 1}]
    rig = make_rig(change, origin=Counting)
    for _ in range(3):
        assert rig.get("/").status == 200
    assert rig.a.most == 1
