"""What the end-to-end tests stand on.

    http.py     strict HTTP/1.1 over one socket: the words that both sides share
    client.py   the client side: raw bytes out, exactly one answer in
    origin.py   the server side: scripted, threaded, remembers every byte
    culvert.py  the program under test: configuration, start, logs, metrics, stop
    life.py     the program alone, for tests of its life: inherited sockets, crashes, privileges
    rig.py      one culvert, its origins and a DNS server, joined by a configuration
    dnsd.py     a DNS server with programmable answers
    proxyproto.py, websocket.py   bytes of these protocols
    net.py      ports, and waiting for conditions (never for time)

Both sides are strict on purpose: a message that culvert writes and that is not exactly
what RFC 9112 lets a sender generate fails the test, whatever the test was about.
"""
