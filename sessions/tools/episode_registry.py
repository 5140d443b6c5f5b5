"""The episodes that this shard serves, found by the token of a call.

`tools_for` is the door of every transport: it takes a request's headers and gives the episode, or
says why not. Which refusal it is tells the agent what to do: 401 for a token that is none, 410 for
an episode that is over, 403 for a token that is another run's.

Spec: docs/tools.md#statuses
"""

from __future__ import annotations

from collections.abc import Mapping

from sessions.errors.episodes import BadEpisodeTokenError, DuplicateClaimError
from sessions.routing.claim_keys import claim_key
from sessions.routing.claimed_kinds import EPISODE
from sessions.routing.episode_tokens import read_episode_token
from sessions.routing.episodes import EpisodeId
from sessions.tools.open_work import not_running_error
from sessions.tools.served_episode import ServedEpisode


def claim_key_of(episode: EpisodeId) -> bytes:
    """The claim of an episode, as router and shard know it."""
    return claim_key(EPISODE, episode.key)


class EpisodeRegistry:
    """By claim key; see the module docstring."""

    def __init__(self, run_secret: bytes, header: str) -> None:
        """Hold no episode.

        Args:
            run_secret: Signs tokens.
            header: Name of the token's header.
        """
        self._secret = run_secret
        self._header = header.lower()
        self._episodes: dict[bytes, ServedEpisode] = {}

    def __len__(self) -> int:
        return len(self._episodes)

    def add(self, served: ServedEpisode) -> None:
        """Serve an episode.

        Raises:
            DuplicateClaimError: The same one is served; it stays.
        """
        key = claim_key_of(served.episode)
        if key in self._episodes:
            raise DuplicateClaimError("this attempt of the rollout is running on this server")
        self._episodes[key] = served

    def remove(self, served: ServedEpisode) -> None:
        """Serve an episode no longer, if it is the one that is served."""
        key = claim_key_of(served.episode)
        if self._episodes.get(key) is served:
            del self._episodes[key]

    def named_in(self, headers: Mapping[str, str]) -> str | None:
        """The key of the episode that a request names by its token, or None, as a router reads it.

        Args:
            headers: Of the request, found by lower-case names.
        """
        text = headers.get(self._header, "").strip(" \t")
        try:
            return read_episode_token(self._secret, text).key
        except BadEpisodeTokenError:
            return None

    def tools_for(self, headers: Mapping[str, str]) -> ServedEpisode:
        """The episode that a request may call.

        Args:
            headers: Of the request, found by lower-case names (Starlette's `Headers`, for one).

        Raises:
            BadEpisodeTokenError: The token is missing, or was not signed by this run.
            EpisodeNotRunningError: Its episode is not served here.
            WrongNonceError: Its episode is, and the token is not of this run of it.
        """
        text = headers.get(self._header, "").strip(" \t")  # no part of it (RFC 9110 section 5.5)
        if not text:
            raise BadEpisodeTokenError(f"the request has no episode token in {self._header}")
        token = read_episode_token(self._secret, text)
        served = self._episodes.get(claim_key(EPISODE, token.key))
        if served is None:
            raise not_running_error()
        served.check_nonce(token.nonce)
        return served
