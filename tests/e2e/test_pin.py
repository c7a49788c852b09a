"""Connections that carried NTLM or Negotiate belong to one client: never pooled, never another's."""

import pytest


def numbered(field):
    """Answers with the number of the server's connection; with this field where the path says so."""
    def script(conn):
        while True:
            asked = conn.read_request()
            conn.respond(200, str(conn.number), [field] if "/auth" in asked.target else [])
    return script


@pytest.mark.parametrize("scheme", ["NTLM TlRMTVNTUAAC", "Negotiate", "negotiate YII="])
def test_pinned_by_the_answer(door, scheme):
    door.rig.a.on(numbered(f"WWW-Authenticate: {scheme}"))
    first, second = door.client(), door.client()
    mine = first.ask(door.head("GET", "/auth")).text
    other = second.ask(door.head("GET", "/x")).text
    assert other != mine
    assert first.ask(door.head("GET", "/y")).text == mine
    assert second.ask(door.head("GET", "/y")).text == other
    first.half_close()
    first.expect_closed()
    door.rig.a.conns[int(mine)].wait_ended()
    assert second.ask(door.head("GET", "/z")).text == other


def test_pinned_by_the_request(door):
    door.rig.a.on(numbered("X-Any: x"))
    first, second = door.client(), door.client()
    mine = first.ask(door.head("GET", "/", "Authorization: NTLM TlRMTVNTUAAB")).text
    assert second.ask(door.head("GET", "/")).text != mine
    assert first.ask(door.head("GET", "/")).text == mine


def test_others_are_pooled(door):
    door.rig.a.on(numbered("WWW-Authenticate: Basic realm=x"))
    first, second = door.client(), door.client()
    mine = first.ask(door.head("GET", "/auth")).text
    assert second.ask(door.head("GET", "/")).text == mine
