from sessions.engine.engine import EngineReply


def test_the_first_value_of_a_header_is_given():
    reply = EngineReply(status=200, headers=[(b"a", b"1"), (b"a", b"2")], body=b"")
    assert reply.header(b"a") == b"1"
    assert reply.header(b"b") == b""
