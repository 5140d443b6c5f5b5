from sessions.core.engine_replies.sampled import shown_text


def test_a_long_body_is_shown_in_part_and_without_replay():
    shown = shown_text(b'{"error":"x","sglext":{"routed_experts":"' + b"A" * 5000)
    assert shown.startswith('{"error":"x"')
    assert "AAAA" not in shown
    assert len(shown_text(b"x" * 10_000)) == 303
