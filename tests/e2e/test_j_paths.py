"""J01, J02, J08: one normal form of the path, hosts in any spelling, methods as they are."""

import pytest

from harness.client import request
from harness.fixtures import shared_rig

# What the standard configuration's rule on /admin (403) makes of it.
DENIED = ["/admin", "/admin/", "/admin/x", "/public/../admin", "/%61dmin", "/%61%64%6d%69%6e", "//admin", "/./admin",
          "///admin//x",
          "/x/%2e%2e/admin", "/%2e/admin", "/x/.%2e/admin", "/a/b/../../admin",
          "/admin?x",
          "/x/..//admin", "/admin/.", "/admin/x/..", "//./admin", "/admin/../admin"]
REFUSED = ["/admin%00", "/admin#", "/public/..%2fadmin", "/public/..%2Fadmin", "/public/..%5cadmin",
           "/public/%2e%2e%2fadmin",
           "/..\\admin", "/public\\..\\admin", "\\admin", "/x%2f..", "/x%2f../admin", "/x%5c..%5cadmin", "/.%2fadmin",
           "/x%2f.", "/%00", "/a%2f%2e%2e%2fb", "/x\\y", "/user/..;x=y/admin",
           "/..;/admin", "/.;x/admin"]
# Above the root there is nothing: refused, or the root itself (RFC 3986 section 5.2.4).
ABOVE_ROOT = ["/../admin", "/../../admin", "/%2e%2e/admin", "/x/../../admin", "/.."]
PASSED = [("/ADMIN", "/ADMIN"), ("/admin;x", "/admin;x"), ("/administrator", "/administrator"), ("/adm", "/adm"),
          ("/%7euser", "/~user"), ("/a%2fb", "/a%2fb"),
          ("/a//b", "/a/b"),
          ("/a/./b", "/a/b"), ("/a/../b2", "/b2"), ("/a/b/..", "/a/"), ("/a/b/.", "/a/b/"), ("/x%20y", "/x%20y"),
          ("/%c3%a9", "/%C3%A9"), ("/%41%2D%2e%5f%7E", "/A-._~"), ("/a?b=%61/../c//d", "/a?b=%61/../c//d"),
          ("/a?", "/a?"), ("/a?/../x?y#".rstrip("#"), "/a?/../x?y"), ("/admin/../open", "/open"), ("/...", "/..."),
          ("/.a", "/.a"), ("/a..", "/a.."), ("/a:b@c!$&'()*+,;=", "/a:b@c!$&'()*+,;="), ("/%25", "/%25"),
          ("/%252e%252e/admin", "/%252e%252e/admin"), ("/", "/"), ("/a/", "/a/")]


@pytest.mark.parametrize("target", DENIED)
def test_j01_every_spelling_meets_the_rule(rig, target):
    answer = rig.get(target)
    assert (answer.status, answer.text) == (403, "no\n")
    rig.a.assert_untouched()


@pytest.mark.parametrize("target", REFUSED)
def test_j01_hidden_segments_are_refused(web, target):
    web.refused(f"GET {target} HTTP/1.1\r\nHost: {web.host}\r\n\r\n")


@pytest.mark.parametrize("target,expected", PASSED)
def test_j01_the_upstream_gets_the_form_that_was_matched(rig, target, expected):
    assert rig.get(target).status == 200
    got = rig.a.last.target
    # The case of the two digits of an escape is free (RFC 3986 section 6.2.2.1).
    assert (got.lower() if "%" in expected else got) == (expected.lower() if "%" in expected else expected)


@pytest.mark.parametrize("target", ABOVE_ROOT)
def test_j01_above_the_root(rig, target):
    answer = rig.get(target)
    if answer.status == 200:
        assert (target, rig.a.last.target) == ("/..", "/")
    else:
        assert answer.status in (400, 403)
        rig.a.assert_untouched()


def test_j01_encoded_slash_is_opaque(rig):
    """/admin%2f is no border of a segment: it goes on as it came, or is refused; it never becomes /admin/."""
    answer = rig.get("/admin%2fx")
    if answer.status == 200:
        assert rig.a.last.target.lower() == "/admin%2fx"
    else:
        assert answer.status in (400, 403)
        rig.a.assert_untouched()


@pytest.mark.parametrize("target", ["/%", "/%4", "/%zz", "/a%g0", "/%%41", "/a?%"[:3] + "%2", "/%u0041"])
def test_j01_broken_escapes(web, target):
    """In a path they are refused; nobody guesses."""
    client = web.client()
    client.send(f"GET {target} HTTP/1.1\r\nHost: {web.host}\r\n\r\n")
    answer = client.read_response()
    if "?" in target:
        assert answer.status in (200, 400)
    else:
        assert answer.status == 400, answer


def test_j01_forward_does_not_rewrite(fwd):
    for path in ("//a/../b", "/%61dmin", "/x/./y", "/a%2f..%2fb", "/%7e?q=%41"):
        assert fwd.get(path).status == 200
        assert fwd.rig.a.last.target == path


def test_j01_absolute_form_is_normalised_too(rig):
    client = rig.web()
    assert client.ask("GET http://web.test/x/../%61dmin HTTP/1.1\r\nHost: web.test\r\n\r\n").status == 403


def test_j01_prefix_ends_on_a_segment_border(rig):
    assert rig.get("/b").one("X-Origin") == "b"
    assert rig.get("/b/x").one("X-Origin") == "b"
    assert rig.get("/bx").one("X-Origin") == "a"
    assert rig.get("/b?x").one("X-Origin") == "b"


def test_j01_redirect_keeps_the_query(rig):
    answer = rig.get("/old?a=%61&b")
    assert answer.status == 308
    assert answer.one("Location").endswith("/new?a=%61&b")


def reject_slash(conf, port):
    conf["sites"][0]["encoded_slash"] = "reject"


rejecting = shared_rig(reject_slash)


def test_j01_encoded_slash_rejected_by_the_site(rejecting):
    assert rejecting.get("/a%2fb").status == 400
    assert rejecting.get("/a/b").status == 200
    assert rejecting.get("/a?x=%2f").status == 200


# -- J02: hosts

@pytest.mark.parametrize("host", ["www.named.test", "WWW.Named.TEST", "www.named.test.", "www.named.test:80",
                                  "www.named.test:8080",
                                  "WWW.NAMED.TEST.:80", "a.wild.test", "a.b.wild.test", "A.WILD.test."])
def test_j02_host_in_any_spelling(rig, host):
    assert rig.get("/", host=host).one("X-Origin") == "b"


@pytest.mark.parametrize("host", ["named.test", "xwww.named.test", "www.named.test.evil.test", "wild.test",
                                  ".wild.test"[1:],
                                  "awild.test", "1.2.3.4", "[::1]"])
def test_j02_other_hosts(rig, host):
    assert rig.get("/", host=host).one("X-Origin") == "a"


def test_j02_client_s_host_goes_on(rig):
    rig.get("/", host="WWW.Named.test:8080")
    assert rig.b.last.one("Host").lower() == "www.named.test:8080"


def many_hosts(conf, port):
    conf["sites"] = [{"name": "many", "hosts": [f"h{i}.test" for i in range(300)]
                      + [f"*.w{i}.test" for i in range(100)],
                      "routes": [{"match": {"prefix": "/"}, "upstream": "app"}]}]
    del conf["upstreams"]["b"], conf["upstreams"]["pair"]


many = shared_rig(many_hosts)


def test_j02_many_hosts(many):
    for host in ("h0.test", "H299.test", "h150.test.", "x.w0.test", "x.y.W99.test"):
        assert many.get("/", host=host).status == 200


@pytest.mark.parametrize("host", ["h300.test", "w0.test", "test", "x.h0.test"])
def test_j02_no_site(many, host):
    """No fallback to the first site."""
    client = many.web()
    client.send(request(host=host))
    assert client.read_response().status == 404
    assert many.log.of(client)["reason"] == "no_site"
    many.a.assert_untouched()


def test_j02_no_route(make_rig):
    def change(conf, port):
        conf["sites"][0]["routes"] = conf["sites"][0]["routes"][:4]
        del conf["upstreams"]["app"], conf["upstreams"]["pair"]
    rig = make_rig(change)
    client = rig.web()
    client.send(request("GET", "/nothing"))
    assert client.read_response().status == 404
    assert rig.log.of(client)["reason"] == "no_route"


# -- J08: methods

@pytest.mark.parametrize("method", ["get", "Get", "post", "hEAD", "delete", "PROPFIND", "M-SEARCH", "X!"])
def test_j08_methods_are_case_sensitive(door, method):
    """Sent on as they are; an unknown method's answer has a body."""
    client = door.client()
    answer = client.ask(door.head(method, "/m"))
    assert answer.status == 200 and answer.text == f"a {method} /m\n"
    assert door.rig.a.last.method == method
    assert client.ask(door.head("GET", "/next")).text == "a GET /next\n"


def test_j08_lower_case_connect_is_no_tunnel(fwd):
    client = fwd.client()
    client.send(f"connect {fwd.rig.a.authority} HTTP/1.1\r\nHost: x\r\n\r\n")
    assert 400 <= client.read_response().status < 600
    fwd.rig.a.assert_untouched()


@pytest.mark.parametrize("name", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"])
def test_j08_override_changes_nothing(door, name):
    assert door.get("/", f"{name}: DELETE").status == 200
    assert door.rig.a.last.method == "GET"
    assert door.rig.a.last.one(name) == "DELETE"


def test_j08_head_of_a_rule(rig):
    client = rig.web()
    answer = client.ask(request("HEAD", "/admin"), "HEAD")
    assert answer.status == 403 and answer.body == b""
    assert client.ask(request("GET", "/ping")).text == "pong\n"
