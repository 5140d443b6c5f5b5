import pytest

from sessions.core.http_exchange.routes import Operation, route_of
from sessions.errors.client_visible import ClientVisibleError
from sessions.errors.protocol import BadHeadError, MethodNotAllowedError, UnknownPathError
from sessions.errors.sessions import BadSessionIdError


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [
        ("GET", b"/", Operation.GREET),
        ("HEAD", b"/", Operation.GREET),
        ("POST", b"/sessions", Operation.CREATE),
        ("GET", b"/sessions/a", Operation.READ),
        ("HEAD", b"/sessions/a", Operation.READ),
        ("DELETE", b"/sessions/a", Operation.DELETE),
        ("POST", b"/sessions/a/v1/chat/completions", Operation.CHAT),
        ("POST", b"/sessions/a/v1/chat%2Fcompletions", Operation.CHAT),
        ("GET", b"/sessions/a/v1/models", Operation.MODELS),
        ("POST", b"/sessions/a/samples", Operation.SAMPLES),
        ("POST", b"/sessions/a/%73amples", Operation.SAMPLES),
        ("POST", b"/sessions/a/v1/samples", Operation.PROXY),
        ("POST", b"/v1/samples", Operation.PROXY),
        ("PATCH", b"/sessions/a/anything/else", Operation.PROXY),
        ("GET", b"/sessions/a/", Operation.PROXY),
        ("POST", b"/v1/chat/completions", Operation.CHAT),
        ("POST", b"/sessions/a/v1/messages", Operation.MESSAGES),
        ("POST", b"/sessions/a/v1/mess%61ges/count_tokens", Operation.COUNT_TOKENS),
        ("POST", b"/v1/messages", Operation.MESSAGES),
        ("POST", b"/v1/messages/count_tokens", Operation.COUNT_TOKENS),
        ("POST", b"/v1/messages/batches", Operation.PROXY),
        ("GET", b"/v1/models", Operation.MODELS),
        ("POST", b"/v1/embeddings", Operation.PROXY),
        ("OPTIONS", b"/sessions/a", Operation.OPTIONS),
    ],
)
def test_path_and_method_name_an_operation(method: str, path: bytes, operation: Operation):
    assert route_of(path).operation_of(method) is operation


@pytest.mark.parametrize("path", [b"/sessions/a%2Eb/x%2Fy", b"/%73essions/a.b/x%2Fy"])
def test_the_id_is_decoded_once_and_the_rest_kept_raw(path: bytes):
    route = route_of(path)
    assert (route.session_id, route.rest) == ("a.b", b"/x%2Fy")


def test_an_id_that_is_encoded_twice_is_none():
    with pytest.raises(BadSessionIdError):
        route_of(b"/sessions/a%252Eb")


def test_plain_paths_are_told_apart():
    assert route_of(b"/v1/models").is_plain
    assert not route_of(b"/sessions/a/v1/models").is_plain


@pytest.mark.parametrize(
    "path",
    [
        b"/nope",
        b"/sessions/",
        b"/v1",
        b"/V1/models",
        b"//sessions/a",
        b"*",
        b"",
        b"/v1/chat/completions/",
        b"/v1//chat/completions",
        b"/sessions/a/v1/chat/completions/",
        b"/sessions/a//v1/chat/completions",
        b"/sessions/a/v1/./chat/completions",
        b"/sessions/a/x/../v1/chat/completions",
        b"/sessions/a/v1/%2e/chat/completions",
        b"/sessions/a/v1/models/",
        b"/sessions/a/v1/messages/",
        b"/v1//messages",
    ],
)
def test_other_paths_are_unknown_and_never_passed_on(path: bytes):
    with pytest.raises(UnknownPathError):
        route_of(path)


@pytest.mark.parametrize(
    "path",
    [
        b"/sessions/a/v1/v1/messages",
        b"/sessions/a/v1/v1/chat/completions",
        b"/sessions/a/v1%2Fv1/messages",
        b"/v1/v1/messages/count_tokens",
        b"/sessions/a/chat/completions",
        b"/sessions/a/messages",
        b"/sessions/a/messages/count_tokens",
    ],
)
def test_a_base_url_with_the_version_twice_or_not_at_all_is_told_the_right_one(path: bytes):
    with pytest.raises(UnknownPathError, match="anthropic_base_url"):
        route_of(path)


@pytest.mark.parametrize("path", [b"/sessions/a%2Fb", b"/sessions/%", b"/sessions/" + b"a" * 129])
def test_what_stands_in_a_sessions_place_must_be_an_id(path: bytes):
    with pytest.raises(BadSessionIdError):
        route_of(path)


def test_a_path_with_raw_bytes_is_refused():
    with pytest.raises(BadHeadError):
        route_of("/sessions/é".encode())


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", b"/sessions", ["OPTIONS", "POST"]),
        ("GET", b"/sessions", ["OPTIONS", "POST"]),
        ("POST", b"/", ["GET", "HEAD", "OPTIONS"]),
        ("PATCH", b"/sessions/a", ["DELETE", "GET", "HEAD", "OPTIONS"]),
        ("GET", b"/sessions/a/v1/chat/completions", ["OPTIONS", "POST"]),
        ("TRACE", b"/sessions/a/x", ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"]),
    ],
)
def test_a_method_that_a_route_has_not_is_told_the_ones_it_has(
    method: str, path: bytes, allow: list[str]
):
    route = route_of(path)
    assert route.allow == allow
    with pytest.raises(MethodNotAllowedError) as caught:
        route.operation_of(method)
    error: ClientVisibleError = caught.value
    assert error.status == 405
    assert ("allow", ", ".join(allow)) in error.headers
