"""A01-A15, A24: HTTP/1 framing and syntax of requests, through both listeners.

Refused means: the status, `Connection: close`, the end of the connection, a reason in the log, and not
one byte at an origin. A smuggled request would show up at the origin as /smuggled.
"""

import pytest

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: web.test\r\n\r\n"
CHUNKED_HELLO = b"5\r\nhello\r\n0\r\n\r\n"


def ids(values):
    return [str(i) for i in range(len(values))]


# -- A01, A02: both framings

@pytest.mark.parametrize("lines", [
    ("Content-Length: 6", "Transfer-Encoding: chunked"),
    ("Transfer-Encoding: chunked", "Content-Length: 6"),
    ("Content-Length: 0", "Transfer-Encoding: chunked"),
    ("content-length:6", "transfer-encoding:chunked"),
    ("Content-Length: 6", "X: y", "Transfer-Encoding: Chunked"),
])
def test_a01_cl_te(door, lines):
    door.refused(door.head("POST", "/", *lines) + b"0\r\n\r\nG" + SMUGGLED)


def test_a02_te_cl(door):
    body = b"5c\r\nGPOST / HTTP/1.1\r\nContent-Length: 15\r\n\r\nx=1\r\n0\r\n\r\n"
    door.refused(door.head("POST", "/", "Transfer-Encoding: chunked", "Content-Length: 4") + body + SMUGGLED)


# -- A03: Transfer-Encoding, obfuscated

REFUSED_TE = {
    "a_space_before_colon": "Transfer-Encoding : chunked",
    "e_vt": b"Transfer-Encoding: \x0bchunked",
    "e_nbsp": b"Transfer-Encoding: \xa0chunked",
    "e_nul": b"Transfer-Encoding: chunked\x00",
    "g_twice_in_one": "Transfer-Encoding: chunked, chunked",
    "g_two_lines": "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "h_identity_last": "Transfer-Encoding: chunked, identity",
    "h_gzip_last": "Transfer-Encoding: chunked, gzip",
    "j_empty": "Transfer-Encoding:",
    "j_blank": "Transfer-Encoding:  ",
    "k_folded": "Transfer-Encoding:\r\n chunked",
    "n_bare_lf": "Foo: x\nTransfer-Encoding: chunked",
}


@pytest.mark.parametrize("length", ["", "Content-Length: 5\r\n"], ids=["alone", "with_cl"])
@pytest.mark.parametrize("line", REFUSED_TE.values(), ids=REFUSED_TE.keys())
def test_a03_te_refused(door, line, length):
    line = line if isinstance(line, bytes) else line.encode("latin-1")
    door.refused(door.head("POST", "/", length.encode() + line) + CHUNKED_HELLO + SMUGGLED)


@pytest.mark.parametrize("value", ["xchunked", "chunked;q=1", '"chunked"', "gzip, chunked", "gzip", "identity"])
def test_a03_di_unknown_coding(door, value):
    client = door.client()
    client.send(door.head("POST", "/", f"Transfer-Encoding: {value}") + CHUNKED_HELLO + SMUGGLED)
    answer = client.read_response()
    assert answer.status in (400, 501), answer
    assert "close" in answer.list("Connection")
    client.expect_closed()
    reason = door.rig.log.of(client)["reason"]
    assert reason.startswith("http_request_error") if answer.status == 400 else reason == "coding_unsupported"
    door.rig.a.assert_untouched()


@pytest.mark.parametrize("value", ["xchunked", "gzip, chunked", "identity"])
def test_a03_di_unknown_coding_with_length(door, value):
    client = door.client()
    client.send(door.head("POST", "/", "Content-Length: 5", f"Transfer-Encoding: {value}") + b"hello" + SMUGGLED)
    assert client.read_response().status in (400, 501)
    client.expect_closed()
    door.rig.a.assert_untouched()


@pytest.mark.parametrize("line", ["Transfer-Encoding:\tchunked", "Transfer-Encoding: Chunked",
                                  "Transfer-Encoding: CHUNKED", "tRANSFER-eNCODING: chunked",
                                  "Transfer-Encoding:chunked", "Transfer-Encoding: chunked \t "])
def test_a03_bc_valid(door, line):
    client = door.client()
    answer = client.ask(door.head("POST", "/up", line) + CHUNKED_HELLO + door.head("GET", "/next"))
    assert answer.status == 200
    assert client.read_response().text == "a GET /next\n"
    first = door.rig.a.requests[0]
    assert (first.method, first.target, first.body) == ("POST", "/up", b"hello")


@pytest.mark.parametrize("value", [",chunked", "chunked,", ", chunked ,", ",,chunked"])
def test_a03_f_empty_members(door, value):
    """Legal, but never "no coding": chunked, or refused."""
    client = door.client()
    client.send(door.head("POST", "/up", f"Transfer-Encoding: {value}") + CHUNKED_HELLO + door.head("GET", "/next"))
    answer = client.read_response()
    if answer.status == 400:
        client.expect_closed()
        door.rig.a.assert_untouched()
    else:
        assert answer.status == 200
        assert client.read_response().text == "a GET /next\n"
        assert door.rig.a.requests[0].body == b"hello"


def test_a03_l_underscore_is_no_framing(door):
    client = door.client()
    client.send(door.head("POST", "/up", "Content-Length: 5", "Transfer_Encoding: chunked") + b"hello"
                + door.head("GET", "/next"))
    answer = client.read_response()
    if answer.status == 400:
        client.expect_closed()
        door.rig.a.assert_untouched()
        return
    assert answer.status == 200
    assert client.read_response().text == "a GET /next\n"
    assert door.rig.a.requests[0].body == b"hello"


def test_a03_m_te_in_http10(door):
    door.refused(door.head("POST", "/", "Transfer-Encoding: chunked", version="HTTP/1.0") + CHUNKED_HELLO)


# -- A04: Content-Length

REFUSED_CL = ["+5", "-1", "0x5", "5_0", "5 5", "5, 6", "", "5;", "18446744073709551617", "18446744073709551616",
              "99999999999999999999999999", "5.0", "5e0", "\x0b5", "5a", "a5", "-0", ",", "5,", "०"]


@pytest.mark.parametrize("value", REFUSED_CL[:-1], ids=ids(REFUSED_CL[:-1]))
def test_a04_cl_value(door, value):
    client = door.client()
    client.send(door.head("POST", "/", f"Content-Length: {value}") + b"hello" + SMUGGLED)
    answer = client.read_response()
    # A number that is merely too large may also be refused as such.
    assert answer.status == 400 or answer.status == 413 and len(value) >= 20, answer
    assert "close" in answer.list("Connection")
    client.expect_closed()
    door.rig.a.assert_untouched()


def test_a04_cl_nul(door):
    door.refused(door.head("POST", "/", b"Content-Length: 5\0") + b"hello" + SMUGGLED)


def test_a04_cl_obs_text(door):
    door.refused(door.head("POST", "/", b"Content-Length: \xe0\xa5\xa6") + b"hello" + SMUGGLED)


@pytest.mark.parametrize("lines", [("Content-Length: 5", "Content-Length: 6"),
                                   ("Content-Length: 6", "Content-Length: 5"),
                                   ("Content-Length:", "Content-Length: 59"),
                                   ("Content-Length: 5", "Content-Length:"),
                                   ("Content-Length: 5", "X: y", "content-length: 0")])
def test_a04_two_lines_differ(door, lines):
    door.refused(door.head("POST", "/", *lines) + b"hello!" + SMUGGLED)


@pytest.mark.parametrize("lines", [("Content-Length: 5", "Content-Length: 5"), ("Content-Length: 5,5",),
                                   ("Content-Length: 5, 5",)])
def test_a04_identical(door, lines):
    """Refused, or merged into one."""
    client = door.client()
    client.send(door.head("POST", "/up", *lines) + b"hello" + door.head("GET", "/next"))
    answer = client.read_response()
    if answer.status == 400:
        client.expect_closed()
        door.rig.a.assert_untouched()
    else:
        assert answer.status == 200
        assert client.read_response().text == "a GET /next\n"
        assert door.rig.a.requests[0].all("Content-Length") == ["5"]
        assert door.rig.a.requests[0].body == b"hello"


@pytest.mark.parametrize("value", ["005", "5 ", "\t5", "0000000000000000000000005", "010"])
def test_a04_decimal(door, value):
    client = door.client()
    body = b"hello" if "5" in value else b"hellohello"
    client.send(door.head("POST", "/up", f"Content-Length: {value}") + body + door.head("GET", "/next"))
    assert client.read_response().status == 200
    assert client.read_response().text == "a GET /next\n"
    assert door.rig.a.requests[0].body == body


# -- A06: bare LF; A07: bare CR

def test_a06_a_bare_lf_in_head(door):
    door.refused(f"GET {door.target()} HTTP/1.1\nHost: {door.host}\n\n")


@pytest.mark.parametrize("head", [
    "GET {t} HTTP/1.1\nHost: {h}\r\n\r\n", "GET {t} HTTP/1.1\r\nHost: {h}\nX: y\r\n\r\n",
    "GET {t} HTTP/1.1\r\nHost: {h}\r\nX: y\n\r\n", "GET {t} HTTP/1.1\r\nHost: {h}\r\n\n",
    "GET {t} HTTP/1.1\r\nHost: {h}\n\r\n", "GET {t} HTTP/1.1\r\nX: a\nb\r\nHost: {h}\r\n\r\n"])
def test_a06_one_bare_lf_in_head(door, head):
    door.refused(head.format(t=door.target(), h=door.host))


@pytest.mark.parametrize("head", [
    "GET {t} HTTP/1.1\r\nHost: {h}\r\nX: a\rEvil: b\r\n\r\n",
    "GET {t} HTTP/1.1\r\r\nHost: {h}\r\n\r\n",
    "GET {t} HTTP/1.1\rHost: {h}\r\n\r\n",
    "GET {t} HTTP/1.1\r\nHost: {h}\r\n\rX\r\n\r\n",
    "GET {t} HTTP/1.1\r\nHost: {h}\r\nX: a\r\r\n\r\n",
    "GET {t} HTTP/1.1\r\nHost: {h}\r\nX\r: a\r\n\r\n",
    "GET {t}\r HTTP/1.1\r\nHost: {h}\r\n\r\n",
    "GET {t} HTTP/1.1\r\nHost: {h}\r\n\r\r\n\r\n"])
def test_a07_bare_cr(door, head):
    door.refused(head.format(t=door.target(), h=door.host))


# -- A08: folding; A09: white space; A10: names; A11: values

@pytest.mark.parametrize("lines", [
    ("X: 1\r\n  2",), ("X: 1\r\n\t2",), ("Content-Length: 5\r\n ",), ("Content-Length:\r\n 5",),
    ("Transfer-Encoding:\r\n chunked",), ("Expect:\r\n 100-continue", "Content-Length: 5")])
def test_a08_obs_fold(door, lines):
    door.refused(door.head("POST", "/", *lines) + b"hello" + SMUGGLED)


def test_a08_obs_fold_on_host(rig, door):
    door.refused(f"GET {door.target()} HTTP/1.1\r\nHost: {door.host}\r\n .evil\r\n\r\n")
    door.refused(f"GET {door.target()} HTTP/1.1\r\nHost:\r\n {door.host}\r\n\r\n")


@pytest.mark.parametrize("line", ["Content-Length : 5", "Content-Length\t: 5", "Content-Length 5", "Content-Length",
                                  "Transfer-\r\n Encoding: chunked", "X : y", "X\t: y"])
def test_a09_space_before_colon(door, line):
    door.refused(door.head("POST", "/", line) + b"hello" + SMUGGLED)


@pytest.mark.parametrize("first", [" X: y", "\tX: y", " ", " Host: evil"])
def test_a09_first_line_starts_with_space(door, first):
    door.refused(f"GET {door.target()} HTTP/1.1\r\n{first}\r\nHost: {door.host}\r\n\r\n")


NAMES = [b":x: y", b": y", b"a\x85: b", b"a b: c", b'"a": b', b"a\0b: c", b"a(b: c", b"a/b: c", b"a@b: c",
         b"a[b: c", b"a\x7fb: c", b"a{b: c", b"a,b: c", b"a;b: c", b"a=b: c", b"a<b: c", b"a\\b: c",
         b"\xef\xbb\xbfa: b"]


@pytest.mark.parametrize("line", NAMES, ids=ids(NAMES))
def test_a10_names(door, line):
    door.refused(door.head("POST", "/", line, "Content-Length: 5") + b"hello" + SMUGGLED)


def test_a10_empty_name_hides_nothing(door):
    """An empty name once made a proxy forget the fields that follow."""
    door.refused(door.head("POST", "/", ": x", "Transfer-Encoding: chunked") + CHUNKED_HELLO)


def test_a10_all_token_characters_pass(door):
    client = door.client()
    assert client.ask(door.head("GET", "/", "X!#$%&'*+-.^`|~09: v")).status == 200
    assert door.rig.a.last.one("X!#$%&'*+-.^`|~09") == "v"


VALUES = [b"X: \x01", b"X: a\0b", b"X: a\x1bb", b"X: a\x7fb", b"X: a\x0bb", b"X: a\x0cb", b"X: a\x08"]


@pytest.mark.parametrize("line", VALUES, ids=ids(VALUES))
def test_a11_control_in_value(door, line):
    door.refused(door.head("GET", "/", line))


def test_a11_nul_in_host(door):
    door.refused(f"GET {door.target()} HTTP/1.1\r\nHost: {door.host}\0.evil\r\n\r\n")


def test_a11_obs_text_and_tab_pass(door):
    client = door.client()
    assert client.ask(door.head("GET", "/", b"X: caf\xc3\xa9\tol\xe9")).status == 200
    assert door.rig.a.last.one("X") == b"caf\xc3\xa9\tol\xe9".decode("latin-1")


# -- A12: Host

BAD_HOSTS = ["a, b", "a b", "a@b", "a:99999", "a:65536", "[::1", "a#b", "a/b", "a?b", "a\\b", "[::1]x", "::1",
             "a:b", "a:-1", "a:+80", "a:80:80", "[]", "[zz]", "<a>", "a" * 64 + "." + "b" * 200,
             "x" * 256, "http://a", "[1.2.3.4]", 'a"b', "a^b", "a|b"]


@pytest.mark.parametrize("host", BAD_HOSTS, ids=ids(BAD_HOSTS))
def test_a12_bad_host(door, host):
    door.refused(f"GET {door.target()} HTTP/1.1\r\nHost: {host}\r\n\r\n")


def test_a12_no_host(door):
    door.refused(door.head("GET", "/", host=False))


def test_a12_empty_host(web):
    web.refused("GET / HTTP/1.1\r\nHost:\r\n\r\n")


@pytest.mark.parametrize("second", ["{h}", "other.test"])
def test_a12_two_hosts(door, second):
    door.refused(door.head("GET", "/", "Host: " + second.format(h=door.host)))


def test_a12_body_of_refused_is_no_request(door):
    """The 400 ends the connection: what follows is never a request."""
    door.refused(f"POST {door.target()} HTTP/1.1\r\nHost: a b\r\nContent-Length: {len(SMUGGLED)}\r\n\r\n".encode()
                 + SMUGGLED + SMUGGLED)


@pytest.mark.parametrize("host", ["a", "a.", "A.Example.", "a:80", "a:", "1.2.3.4", "[::1]", "[::1]:8080",
                                  "a-b_c.test",
                                  "xn--bcher-kva.test", "a" * 63 + ".test", "sub!$&'()*+;=.test"])
def test_a12_good_host(web, host):
    client = web.client()
    answer = client.ask(f"GET /h HTTP/1.1\r\nHost: {host}\r\n\r\n")
    if "!" in host and answer.status == 400:
        return     # reg-name allows them, no name of a host has them
    assert answer.status == 200
    # In lower case, and without the root's dot, a host is the same.
    assert web.rig.a.last.one("Host").lower().rstrip(":.") == host.lower().rstrip(":.")


def test_a12_http10_without_host(web):
    client = web.client()
    assert client.ask("GET /h HTTP/1.0\r\n\r\n").status == 200
    assert web.rig.a.last.target == "/h"


# -- A13: absolute-form

def test_a13_target_wins_over_host(rig):
    client = rig.web()
    assert client.ask("GET http://a.test/p?q HTTP/1.1\r\nHost: b.test\r\n\r\n").status == 200
    assert rig.a.last.one("Host") == "a.test"
    assert rig.a.last.target == "/p?q"


def test_a13_target_wins_over_host_forward(fwd):
    client = fwd.client()
    assert client.ask(f"GET {fwd.target('/p?q')} HTTP/1.1\r\nHost: b.test\r\n\r\n").status == 200
    assert fwd.rig.a.last.one("Host") == fwd.rig.a.authority
    assert fwd.rig.a.last.target == "/p?q"


def test_a13_site_of_the_target(rig):
    """The site is chosen by the target's host, never by Host."""
    client = rig.web()
    assert client.ask("GET http://www.named.test/ HTTP/1.1\r\nHost: web.test\r\n\r\n").one("X-Origin") == "b"
    assert client.ask("GET http://web.test/ HTTP/1.1\r\nHost: www.named.test\r\n\r\n").one("X-Origin") == "a"


def test_a13_authority_ends_at_question_mark(door):
    base = door.target("") if door.name == "fwd" else "http://web.test"
    client = door.client()
    assert client.ask(f"GET {base}?x=1 HTTP/1.1\r\nHost: {door.host}\r\n\r\n").status == 200
    assert door.rig.a.last.target == "/?x=1"
    assert door.rig.a.last.one("Host") == door.host


def test_a13_no_path(door):
    base = door.target("") if door.name == "fwd" else "http://web.test"
    client = door.client()
    assert client.ask(f"GET {base} HTTP/1.1\r\nHost: {door.host}\r\n\r\n").status == 200
    assert door.rig.a.last.target == "/"


def test_a13_fragment(door):
    base = door.target("") if door.name == "fwd" else "http://web.test"
    door.refused(f"GET {base}#f HTTP/1.1\r\nHost: {door.host}\r\n\r\n")
    door.refused(f"GET {base}/#f HTTP/1.1\r\nHost: {door.host}\r\n\r\n")


def test_a13_scheme_and_host_any_case(rig):
    client = rig.web()
    assert client.ask("GET HTTP://WWW.NAMED.TEST:80/ HTTP/1.1\r\nHost: x\r\n\r\n").one("X-Origin") == "b"
    assert rig.b.last.one("Host").lower() in ("www.named.test", "www.named.test:80")


def test_a13_scheme_any_case_forward(fwd):
    client = fwd.client()
    answer = client.ask(f"GET HTTP://LocalTest.TEST:{fwd.rig.a.port}/ HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.status == 200
    assert fwd.rig.a.last.one("Host").lower() == f"localtest.test:{fwd.rig.a.port}"


def test_a13_https_is_unsupported(fwd):
    client = fwd.client()
    client.send("GET https://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
    assert client.read_response().status == 501
    assert fwd.rig.log.of(client)["reason"] == "scheme_unsupported"


@pytest.mark.parametrize("target", ["http:///x", "http://", "http:/x", "http:x", "://a/", "http://a:99999/",
                                    "http://a b/", "http://[::1/", "http://a:b/", "http://:80/", "http://a,b/",
                                    "http://a\\b/", "http://%61/%"])
def test_a13_bad_absolute_form(door, target):
    door.refused(f"GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n")


def test_a13_userinfo(door):
    """Never sent on; refused (RFC 9110 section 4.2.4)."""
    authority = door.rig.a.authority if door.name == "fwd" else "web.test"
    door.refused(f"GET http://user:pass@{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n")


# -- A14: other targets

@pytest.mark.parametrize("target", ["foo", "*", "/a b", "?x", "", "web.test:80", "/a\tb", "/a\x7f", "\\x"])
def test_a14_bad_target(door, target):
    door.refused(f"GET {target} HTTP/1.1\r\nHost: {door.host}\r\n\r\n")


def test_a14_bytes_in_target(door):
    for byte in (b"\x80", b"\xff", b"\0", b"\x01"):
        head = f"GET {door.target('/')}".encode() + byte + f" HTTP/1.1\r\nHost: {door.host}\r\n\r\n".encode()
        door.refused(head)


CONNECTS = ["a", "a:", "a:0", "a:70000", "http://a:1", "a:b", ":443", "", "/", "*", "a:443/", "u@a:443", "a b:443",
            "[::1:443", "[a.test]:443", "a:443:443", "a:-1", "a:+443", "a:00000000000443x", "a#b:443", "a,b:443"]


@pytest.mark.parametrize("target", CONNECTS, ids=ids(CONNECTS))
def test_a14_bad_connect(fwd, target):
    fwd.refused(f"CONNECT {target} HTTP/1.1\r\nHost: a.test\r\n\r\n", method="CONNECT")


@pytest.mark.parametrize("host", ["{a}", "a.test", "other.test:1"])
def test_a14_connect_ignores_host(fwd, host):
    client = fwd.client()
    client.send(f"CONNECT {fwd.rig.a.authority} HTTP/1.1\r\nHost: {host.format(a=fwd.rig.a.authority)}\r\n\r\n")
    assert client.read_response("CONNECT").status == 200
    client.send("GET /t HTTP/1.1\r\nHost: a\r\n\r\n")
    assert client.read_response().text == "a GET /t\n"


def test_a14_connect_on_web(rig):
    """A web listener is no tunnel."""
    client = rig.web()
    client.send(f"CONNECT {rig.a.authority} HTTP/1.1\r\nHost: {rig.a.authority}\r\n\r\n")
    answer = client.read_response("CONNECT")
    assert answer.status in (400, 403, 404, 405, 501), answer
    rig.a.assert_untouched()


def test_a14_options_asterisk(web):
    """Valid; never a request for a path "*"."""
    client = web.client()
    answer = client.ask(f"OPTIONS * HTTP/1.1\r\nHost: {web.host}\r\n\r\n")
    assert answer.status != 400, answer
    assert all(r.target == "*" for r in web.rig.a.requests)


def test_a14_options_without_path_becomes_asterisk(fwd):
    """RFC 9112 section 3.2.4: the last proxy sends the asterisk-form."""
    client = fwd.client()
    answer = client.ask(f"OPTIONS http://{fwd.rig.a.authority} HTTP/1.1\r\nHost: {fwd.rig.a.authority}\r\n\r\n")
    assert answer.status == 200
    assert fwd.rig.a.last.start == "OPTIONS * HTTP/1.1"


def test_a14_options_with_path(door):
    client = door.client()
    assert client.ask(door.head("OPTIONS", "/x")).status == 200
    assert door.rig.a.last.start == "OPTIONS /x HTTP/1.1"


def test_a14_double_slash(rig, fwd):
    """One normal form through web; the forward direction never rewrites a path."""
    client = rig.web()
    assert client.ask("GET //x HTTP/1.1\r\nHost: web.test\r\n\r\n").status == 200
    assert rig.a.last.target == "/x"
    assert fwd.get("//x/../%61").status == 200
    assert rig.a.last.target == "//x/../%61"


def test_a14_origin_form_at_a_forward_listener(fwd):
    client = fwd.client()
    client.send("GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n")
    assert 400 <= client.read_response().status < 500
    fwd.rig.a.assert_untouched()


# -- A15: fragment

@pytest.mark.parametrize("path", ["/app/admin#x", "/#", "/a?b#c"])
def test_a15_fragment(door, path):
    door.refused(door.head("GET", path))


# -- A24: method and version

BAD_LINES = [b"G\0T {t} HTTP/1.1", b"GET {t} HTTP/1.32", b"GET {t} HTTP/1", b"GET {t} HTTP/1.", b"GET {t} HTTP/x.y",
             b"GET {t} http/1.1", b"GET {t} HTTP/01.1", b"GET {t} HTTP /1.1", b"GET {t}", b"GET {t} ", b"GET",
             b"RTSP {t} RTSP/1.0", b"GET {t} RTSP/1.0", b"GET {t} HTTPS/1.1", b"GET {t} HTTP/1.1 ",
             b"GET {t}  HTTP/1.1",
             b"GET  {t} HTTP/1.1", b" GET {t} HTTP/1.1", b"GET\t{t} HTTP/1.1", b"GET {t}\tHTTP/1.1",
             b"G(T {t} HTTP/1.1",
             b"G\x80T {t} HTTP/1.1", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET {t} HTTP/1.1\x0b",
             b"{t} HTTP/1.1", b"GET {t} HTTP/-1.1", b"GET {t} HTTP/1.1.1"]
BAD_VERSIONS = [b"GET {t} HTTP/2.0", b"GET {t} HTTP/0.9", b"GET {t} HTTP/3.0", b"GET {t} HTTP/9.9",
                b"GET {t} HTTP/2.1"]


@pytest.mark.parametrize("line", BAD_LINES, ids=ids(BAD_LINES))
def test_a24_request_line(door, line):
    client = door.client()
    client.send(line.replace(b"{t}", door.target().encode()) + f"\r\nHost: {door.host}\r\n\r\n".encode())
    answer = client.read_response()
    assert answer.status == 400 or answer.status == 505 and b"/1.32" in line, answer
    client.expect_closed()
    assert door.rig.log.of(client)["reason"].startswith("http_request_error")
    door.rig.a.assert_untouched()


@pytest.mark.parametrize("line", BAD_VERSIONS, ids=ids(BAD_VERSIONS))
def test_a24_version(door, line):
    door.refused(line.replace(b"{t}", door.target().encode()) + f"\r\nHost: {door.host}\r\n\r\n".encode(), 505)


def test_a24_h2_preface(door):
    client = door.client()
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert client.read_response().status in (400, 505)
    client.expect_closed()
    door.rig.a.assert_untouched()


def test_a24_long_method(door):
    client = door.client()
    client.try_send(door.head("M" * 65536, "/"))
    assert client.read_response().status in (400, 414, 431, 501)
    client.expect_closed()
    door.rig.a.assert_untouched()


def test_a24_unknown_method_is_proxied(door):
    client = door.client()
    assert client.ask(door.head("BREW", "/pot", "Content-Length: 2") + b"hi").status == 200
    assert door.rig.a.last.start == "BREW /pot HTTP/1.1"
    assert door.rig.a.last.body == b"hi"


def test_a24_higher_minor_version(door):
    """Same major version: answered as 1.1 (RFC 9110 section 2.5)."""
    client = door.client()
    answer = client.ask(door.head("GET", "/", version="HTTP/1.2"))
    assert answer.status == 200 and answer.version == "HTTP/1.1"
    assert door.rig.a.last.version == "HTTP/1.1"


def test_a24_empty_lines_before_a_request(door):
    """RFC 9112 section 2.2: at least one empty line before a request line is ignored."""
    client = door.client()
    assert client.ask(b"\r\n" + door.head("GET", "/1")).status == 200
    assert client.ask(b"\r\n" + door.head("GET", "/2")).status == 200
    assert [r.target for r in door.rig.a.requests] == ["/1", "/2"]
