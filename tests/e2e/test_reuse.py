"""Connections to servers: pooled, checked, sent again, ejected. A dead server of two costs no GET."""

import threading
import time

import pytest

from harness import net
from harness.client import Client, request
from harness.fixtures import shared_rig
from harness.origin import Origin, answer_ok

LOAD = 8


def hammer(rig, enough, target="/pair", method="GET", body=None, per_connection=10):
    """Clients in LOAD threads, until end() has seen so many answers, or a bad one."""
    answers, bad, stop = [], [], threading.Event()

    def run():
        while not stop.is_set():
            client = Client(rig.port["web"])
            try:
                for _ in range(per_connection):
                    answer = client.ask(request(method, target, body=body))
                    (answers if answer.status == 200 else bad).append(answer)
                    if stop.is_set() or "close" in answer.list("Connection"):
                        break
            except Exception as error:      # every end here is a failed request
                bad.append(error)
            finally:
                client.close()
    threads = [threading.Thread(target=run) for _ in range(LOAD)]
    for thread in threads:
        thread.start()
    return answers, bad, stop, threads, enough


def end(load):
    """Returns (answers, everything that was not 200)."""
    answers, bad, stop, threads, enough = load
    net.wait_until(lambda: bad or len(answers) >= enough, timeout=40, what="enough answers")
    stop.set()
    for thread in threads:
        thread.join(20)
    return answers, bad


def three(conf, port):
    conf["upstreams"]["pair"]["eject"] = {"failures": 3, "time": "1s"}


# -- a dead server

def test_dead_from_the_start_costs_nothing(make_rig):
    """Round robin over two, one refuses: every GET is answered, in time."""
    rig = make_rig(three, prepare=lambda r: r.b.stop_listening())
    client = rig.web()
    for i in range(200):
        answer = client.ask(request("GET", f"/pair/{i}"))
        assert answer.status == 200 and answer.one("X-Origin") == "a", i
    metrics = rig.metrics()
    assert metrics.value("culvert_upstream_server_up", upstream="pair", server=rig.b.url) == 0
    assert metrics.value("culvert_upstream_server_up", upstream="pair", server=rig.a.url) == 1
    retries = metrics.value("culvert_retries_total", upstream="pair")
    assert 3 <= retries <= 10, f"ejected after 3 failures, not tried each time: {retries}"


def test_dies_and_comes_back_under_load(make_rig):
    """Its listening socket and its connections go in the middle, later it is there again."""
    rig = make_rig(three)
    load = hammer(rig, 1000)
    net.wait_until(lambda: len(load[0]) > 200, what="some load")
    rig.b.stop_listening()
    with rig.b.lock:
        idle = list(rig.b.alive)
    for conn in idle:
        conn.half_close()
    gone = len(load[0])
    net.wait_until(lambda: load[1] or len(load[0]) > gone + 300, timeout=40, what="load without b")
    rig.b.listen_again()
    answers, bad = end(load)
    assert not bad, bad[:5]
    net.wait_until(lambda: rig.get("/pair").one("X-Origin") == "b", what="b serves again")


def test_reset_of_idle_connections_under_load(make_rig):
    """Pooled connections die by RST at any moment between requests: no GET fails."""
    rig = make_rig()

    def answer_then_maybe_die(conn):
        answer_ok(conn)
        if len(conn.requests) >= 5:
            conn.rst()
    rig.a.on(answer_then_maybe_die)
    rig.b.on(answer_then_maybe_die)
    answers, bad = end(hammer(rig, 1000))
    assert not bad, bad[:5]


def test_unannounced_close_after_every_answer(make_rig):
    """The race of RFC 9112 section 9.3.1: FIN while the next request is on its way."""
    rig = make_rig()

    def once(conn):
        answer_ok(conn)
        conn.close()
    rig.a.on(once)
    rig.b.on(once)
    answers, bad = end(hammer(rig, 500))
    assert not bad, bad[:5]


def test_all_but_one_of_many_are_dead(make_rig):
    dead = [Origin(f"dead{i}") for i in range(5)]
    for origin in dead:
        origin.stop_listening()

    def change(conf, port):
        conf["upstreams"]["pair"] = {"servers": [o.url for o in dead] + [conf["upstreams"]["app"]["servers"][0]],
                                     "retry": {"attempts": 6}}
    rig = make_rig(change)
    for _ in range(50):
        assert rig.get("/pair").status == 200


def test_dead_unix_server(make_rig, tmp_path):
    def change(conf, port):
        conf["upstreams"]["pair"]["servers"].append(f"unix:{tmp_path}/gone.sock")
    rig = make_rig(change)
    for _ in range(60):
        assert rig.get("/pair").status == 200


def test_post_goes_to_the_next_one_too_while_nothing_was_sent(make_rig):
    rig = make_rig(three, prepare=lambda r: r.b.stop_listening())
    for _ in range(20):
        client = rig.web()
        assert client.ask(request("POST", "/pair", body=b"x" * 1000)).status == 200
    assert len(rig.a.requests) == 20, "each exactly once"


# -- eject

def test_ejected_for_its_time_then_tried(make_rig):
    rig = make_rig(three, prepare=lambda r: r.b.stop_listening())
    for _ in range(10):
        assert rig.get("/pair").status == 200
    server = {"upstream": "pair", "server": rig.b.url}
    assert rig.metrics().value("culvert_upstream_server_up", **server) == 0
    rig.b.listen_again()
    for _ in range(4):
        assert rig.get("/pair").one("X-Origin") == "a", "its time is not over"
    net.wait_until(lambda: rig.get("/pair").one("X-Origin") == "b", what="b is tried again")
    assert rig.metrics().value("culvert_upstream_server_up", **server) == 1


def test_error_answers_do_not_eject(rig):
    """500 is an answer. So is a reset after the request: not a failure to connect."""
    rig.a.on(lambda conn: (conn.read_request(), conn.respond(500, "x")))
    for _ in range(20):
        rig.get("/")
    assert rig.metrics().value("culvert_upstream_server_up", upstream="app") == 1


def test_the_last_one_is_never_ejected(make_rig):
    def change(conf, port):
        conf["upstreams"]["app"]["eject"] = {"failures": 1, "time": "60s"}
    rig = make_rig(change, prepare=lambda r: r.a.stop_listening())
    for _ in range(5):
        client = rig.web()
        answer = client.ask(request("GET", "/"))
        assert answer.status == 502
        assert rig.log.of(client)["reason"] == "connection_refused"
    rig.a.listen_again()
    assert rig.get("/").status == 200


# -- the pool

def small_pool(conf, port):
    conf["limits"] = {"upstream_pool": 4}
    conf["timeouts"] = {"upstream_keep_alive": "1s"}


pooled = shared_rig(small_pool)


def burst(rig, n, target="/"):
    """n requests at once; returns when all are answered."""
    gate = threading.Barrier(n, timeout=20)
    rig.a.on(lambda conn: (conn.read_request(), gate.wait() if not gate.broken else None, conn.respond(200, "x")))
    clients = [rig.web() for _ in range(n)]
    for client in clients:
        client.send(request("GET", target))
    for client in clients:
        assert client.read_response().status == 200
    rig.a.on(answer_ok)


def test_pool_is_bounded_in_number(pooled):
    burst(pooled, 20)
    pooled.culvert.wait_metric(
        lambda m: 0 < m.value("culvert_upstream_connections", upstream="app", state="idle") <= 5)
    net.wait_until(lambda: len([c for c in pooled.a.conns if c.ended]) >= 15, what="the others are closed")


def test_pool_is_bounded_in_age(pooled):
    assert pooled.get("/").status == 200
    conn = pooled.a.conns[0]
    assert conn.wait_ended(5) == "fin"
    assert pooled.get("/").status == 200
    assert len(pooled.a.conns) == 2


def test_pool_counts(rig):
    before = rig.metrics()
    for _ in range(5):
        assert rig.get("/").status == 200
    after = rig.metrics()

    def grown(name, **labels):
        return after.value(name, upstream="app", **labels) - before.value(name, upstream="app", **labels)
    assert grown("culvert_upstream_connects_total") + grown("culvert_upstream_reuses_total") == 5
    assert grown("culvert_upstream_reuses_total") >= 4
    assert after.value("culvert_upstream_connections", upstream="app", state="idle") >= 1


def test_most_recently_used_first(rig):
    """A burst leaves many; afterwards one is enough, the rest may age."""
    burst(rig, 5)
    for _ in range(10):
        assert rig.get("/").status == 200
    used = [c for c in rig.a.conns if len(c.requests) > 1]
    assert len(used) == 1, [len(c.requests) for c in rig.a.conns]


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_post_does_not_take_an_old_connection(rig, framing):
    """Idle for two seconds: what may not be sent twice gets a fresh one; a GET still takes it."""
    assert rig.get("/").status == 200
    time.sleep(2.1)
    client = rig.web()
    if framing == "length":
        assert client.ask(request("POST", "/", body=b"x")).status == 200
    else:
        chunked = request("POST", "/", fields=["Transfer-Encoding: chunked"]) + b"1\r\nx\r\n0\r\n\r\n"
        assert client.ask(chunked).status == 200
    assert len(rig.a.conns) == 2
    assert not rig.log.of(client)["reused"]
    time.sleep(2.1)
    assert rig.get("/").status == 200
    assert len(rig.a.conns) == 2


def test_silent_retry_is_counted_and_logged(rig):
    """On a fresh connection to the same server; it is a retry in the metrics, but none of retry.attempts."""
    assert rig.get("/").status == 200
    before = rig.metrics().value("culvert_retries_total", upstream="app")

    def die_once(conn):
        conn.read_request()
        if conn.number == 0:
            conn.rst()
        else:
            conn.respond(200, "second\n")
    rig.a.on(die_once)
    client = rig.web()
    assert client.ask(request("GET", "/again")).text == "second\n"
    entry = rig.log.of(client)
    assert entry["attempts"] == 1 and entry["status"] == 200 and entry["reused"] is False, entry
    assert rig.metrics().value("culvert_retries_total", upstream="app") == before + 1


def test_silent_retry_is_done_once(rig):
    """A server that answers nobody: no storm."""
    assert rig.get("/").status == 200
    rig.a.on(lambda conn: (conn.read_request(), conn.rst()))
    client = rig.web()
    assert client.ask(request("GET", "/x")).status == 502
    assert len([r for r in rig.a.requests if r.target == "/x"]) <= 2
    assert rig.log.of(client)["reason"] == "connection_terminated"


@pytest.mark.parametrize("keep", [True, False])
def test_connection_close_of_the_server_is_kept(rig, keep):
    rig.a.on(lambda conn: (conn.read_request(), conn.respond(200, "x", close=not keep)))
    for _ in range(3):
        assert rig.get("/").status == 200
    assert len(rig.a.conns) == (1 if keep else 3)


def test_connections_are_not_shared_between_servers_and_ways(rig):
    """The web direction's pool, the forward direction's, and those of different servers are apart, or the
    same address: never a wrong origin."""
    for i in range(10):
        assert rig.get("/b").one("X-Origin") == "b"
        assert rig.get("/").one("X-Origin") == "a"
        client = rig.fwd()
        assert client.ask(f"GET {rig.b.url}/x HTTP/1.1\r\nHost: x\r\n\r\n").one("X-Origin") == "b"
        assert client.ask(f"GET {rig.a.url}/x HTTP/1.1\r\nHost: x\r\n\r\n").one("X-Origin") == "a", i


@pytest.mark.multishard
def test_dead_server_on_two_shards(make_rig):
    """Health is shared: both shards leave the dead one alone."""
    def change(conf, port):
        three(conf, port)
        conf["workers"] = 2
        conf["upstreams"]["pair"]["eject"]["time"] = "30s"
    rig = make_rig(change, prepare=lambda r: r.b.stop_listening())
    for _ in range(100):
        assert rig.get("/pair").status == 200
    assert rig.metrics().value("culvert_retries_total", upstream="pair") <= 10
