"""An episode whose tools are served: which one, and who may call.

Spec: docs/tools.md#calls
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from sessions.errors.episodes import WrongNonceError
from sessions.routing.episodes import EpisodeId
from sessions.tools.served_tools import ServedTools, ToolCall
from sessions.tools.tool import Tool


class ServedEpisode(ServedTools):
    """Runs the calls of one episode.

    Attributes:
        episode: Which one.
    """

    def __init__(
        self, episode: EpisodeId, nonce: str, tools: Iterable[Tool], calls: list[ToolCall]
    ) -> None:
        """Open.

        Args:
            episode: Which one.
            nonce: What its tokens must carry.
            tools: What it serves; names are unique.
            calls: Gets every call that reaches its tool, in the server's order.

        Raises:
            LocalProtocolError: Two tools have one name.
        """
        super().__init__(tools, calls)
        self.episode = episode
        self._nonce = nonce.encode()

    def check_nonce(self, nonce: str) -> None:
        """Let only callers pass that were given this episode's token.

        Raises:
            WrongNonceError: The nonce is another one; compared in constant time.
        """
        if not hmac.compare_digest(nonce.encode(errors="surrogatepass"), self._nonce):
            raise WrongNonceError("the token is not of this run of the episode")
