"""Self-test of tools/soak: its verdict, and its own origin talking to its own clients."""
import asyncio
import importlib.machinery
import importlib.util
import os

import pytest

TOOL = os.path.join(os.path.dirname(os.path.realpath(__file__)), "soak")
MIB = 1 << 20


def load():
    loader = importlib.machinery.SourceFileLoader("soak", TOOL)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("soak", loader))
    loader.exec_module(module)
    return module


soak = load()


@pytest.mark.parametrize("numbers, words", [
    ((40 * MIB, 40 * MIB, 20, 20, 0), []),
    ((40 * MIB, 57 * MIB, 20, 24, 0), []),
    ((40 * MIB, 59 * MIB, 20, 20, 0), ["memory grew from 40960 KiB to 60416 KiB"]),
    ((40 * MIB, 40 * MIB, 20, 25, 0), ["descriptors grew from 20 to 25"]),
    ((40 * MIB, 40 * MIB, 20, 20, 3), ["3 scenes went wrong"]),
])
def test_verdict(numbers, words):
    assert soak.verdict(*numbers) == words


async def play(*scenes):
    """Scenes against the origin itself, without anything between."""
    world = soak.World()
    server = await asyncio.start_server(soak.origin, "127.0.0.1", 0, limit=1 << 20)
    port = server.sockets[0].getsockname()[1]
    world.port = {"web": port, "origin": port}
    for scene in scenes:
        await scene(world)
    server.close()


def test_origin_and_clients_agree():
    asyncio.run(play(soak.scene_gets, soak.scene_upload, soak.scene_cut, soak.scene_rude_reset))


def test_a_wrong_byte_is_seen():
    async def wrong(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\x00\x01\x03")
        await writer.drain()

    async def ask():
        server = await asyncio.start_server(wrong, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await soak.get(reader, writer, "/bytes/3", 3)
    with pytest.raises(AssertionError, match="or other ones"):
        asyncio.run(ask())
