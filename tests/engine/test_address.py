import pytest

from sessions.engine.address import EngineAddress, parse_address


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "prefix"),
    [
        ("http://e:30000", "e", 30000, "e:30000", b""),
        ("http://e", "e", 80, "e", b""),
        ("http://e:80/", "e", 80, "e", b""),
        ("https://e", "e", 443, "e", b""),
        ("https://e:80", "e", 80, "e:80", b""),
        ("http://E.Example:1/v1", "e.example", 1, "e.example:1", b""),
        ("http://e:1/v1/", "e", 1, "e:1", b""),
        ("http://e:1/pool/v1", "e", 1, "e:1", b"/pool"),
        ("http://e:1/v1/pool", "e", 1, "e:1", b"/v1/pool"),
        ("http://[::1]:7", "::1", 7, "[::1]:7", b""),
        ("http://[::1]", "::1", 80, "[::1]", b""),
        ("http://user:secret@e:1", "e", 1, "e:1", b""),
        ("http://bücher.example", "xn--bcher-kva.example", 80, "xn--bcher-kva.example", b""),
    ],
)
def test_a_base_url_is_taken_apart(url: str, host: str, port: int, authority: str, prefix: bytes):
    assert parse_address(url) == EngineAddress(
        host=host, port=port, is_tls=url.startswith("https"), authority=authority, prefix=prefix
    )


@pytest.mark.parametrize("url", ["", "e:30000", "ftp://e", "http://", "http://e:port", "http://:1"])
def test_what_is_no_base_url_is_refused(url: str):
    with pytest.raises(ValueError, match=r".+"):
        parse_address(url)
