"""What a request tells the simulated engine to do, in its field `sim`.

Servers before the engine pass unknown fields on, so a test scripts the engine through them. The
shapes are msgspec structs, checked where the body is parsed; an unknown field is refused, so a
typing error in a test is not a test that passes.

Spec: docs/sim.md#scripts
"""

from __future__ import annotations

import enum
from typing import Annotated, Any

import msgspec

from sessions.sim.options import Copies

Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Status = Annotated[int, msgspec.Meta(ge=200, le=599)]


class FaultKind(enum.Enum):
    """What goes wrong; docs/sim.md has the table, with the fields that each kind reads."""

    # Instead of the reply.
    STATUS = "status"

    # In the document of the reply.
    NO_CHOICES = "no_choices"
    NULL_CONTENT = "null_content"
    LONE_SURROGATE = "lone_surrogate"
    NO_META_INFO = "no_meta_info"
    NO_LOGPROBS = "no_logprobs"
    NAN_LOGPROBS = "nan_logprobs"
    TOKEN_COUNT = "token_count"  # noqa: S105 - a count of tokens, no password
    NO_TOKEN_COUNT = "no_token_count"  # noqa: S105 - as above
    PROMPT_IDS = "prompt_ids"
    ROWS = "rows"
    BAD_BASE64 = "bad_base64"
    BROKEN_JSON = "broken_json"

    # Not a fault but another framing: chunks instead of a length.
    CHUNKED = "chunked"

    # In the bytes on the wire; only where the simulated engine's own server runs it.
    CUT = "cut"
    RESET = "reset"
    STALL = "stall"
    LENGTH = "length"


WIRE_FAULTS = frozenset(
    {
        FaultKind.CUT,
        FaultKind.RESET,
        FaultKind.STALL,
        FaultKind.LENGTH,
    }
)


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault.

    Attributes:
        kind: What goes wrong.
        status: Of the reply instead; 500 unless given.
        body: JSON value of the reply instead.
        text: Text of the reply instead of JSON.
        headers: Names and values added to the reply instead.
        after_bytes: Body bytes sent before the wire fault; None = not even the head.
        by: Rows or tokens too many (negative: too few), or bytes announced too many.
        key: Faults with the same key count together.
        times: Happens this often per key, then no more; 0 = always.
    """

    kind: FaultKind
    status: Status = 500
    body: Any = None
    text: str | None = None
    headers: list[tuple[str, str]] = []
    after_bytes: Count | None = None
    by: int = -1
    key: str = ""
    times: Count = 0


class ScriptedCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call to sample.

    Attributes:
        name: Of the tool.
        arguments: An object, or a text that is sampled as it stands, JSON or not.
    """

    name: str
    arguments: dict[str, Any] | str = {}


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to sample and how to reply; everything left out is improvised.

    Attributes:
        content: Text of the answer.
        reasoning: Text of the think block; "" = an empty block, null = no block.
        tool_calls: Calls to make; [] = none.
        token_ids: Exactly these ids are sampled, canonical or not; no stop token is added.
        force_ids: These ids are sampled up to the first stop token, which is added if there is
            none.
        finish_reason: Reported instead of the true one, and no stop token is sampled unless it is
            `stop` or `tool_calls`.
        delay_s: Seconds before the reply starts, instead of the options' latency.
        blob_mib: Smallest size of the experts' text; widens the rows (top_k becomes a multiple).
        pad: Width of the rows instead of the options'.
        copies: Where the experts stand instead of the options'.
        fault: What goes wrong.
    """

    content: str | msgspec.UnsetType = msgspec.UNSET
    reasoning: str | msgspec.UnsetType | None = msgspec.UNSET
    tool_calls: list[ScriptedCall] | msgspec.UnsetType = msgspec.UNSET
    token_ids: list[Count] | None = None
    force_ids: list[Count] | None = None
    finish_reason: str | None = None
    delay_s: Seconds | None = None
    blob_mib: Annotated[float, msgspec.Meta(ge=0, le=4096)] = 0
    pad: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | None = None
    copies: Copies | None = None
    fault: Fault | None = None
