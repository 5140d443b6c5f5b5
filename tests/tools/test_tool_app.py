"""The application put together: its routes, and the one shape of all it refuses."""

import pytest

from tests.support.episodes import open_environment
from tests.support.rollouts import error_of


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("POST", "/nowhere", 404),
        ("POST", "/run/", 404),
        ("POST", "/tools", 404),
        ("POST", "/tools/", 404),
        ("POST", "/tools/note/", 404),
        ("POST", "/tools/a/b", 404),
        ("GET", "/run", 405),
        ("PUT", "/tools/note", 405),
    ],
)
async def test_what_is_no_route_is_refused_in_the_one_shape_and_never_redirected(
    method: str, path: str, status: int
):
    async with open_environment() as opened:
        reply = await opened.client.request(method, path)
        error_of(reply, status)
        assert reply.headers.get("allow") == ("POST" if status == 405 else None)


async def test_a_path_is_taken_as_it_was_decoded_once():
    async with open_environment() as opened:
        held, run = await opened.begin()
        reply = await opened.client.post("/tools/n%6Fte", headers=held.headers, json={"text": "hi"})
        assert reply.status_code == 200
        held.is_over.set()
        await run.reply()
