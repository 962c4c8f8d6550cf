"""Which prompt prefixes a server remembers: chained blocks, least recently used ones go first."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CHARACTERS_PER_TOKEN = 4
"""Roughly true of English text in the common tokenisers."""


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of prompt, hashed together with everything before it: equal hashes, equal prefixes."""

    hash: bytes
    tokens: int


def chain(parts: Iterable[str], *, after: bytes = b"") -> tuple[Block, ...]:
    """Turn consecutive parts of a prompt into blocks; `after` is the hash of what came before them."""
    blocks = []
    for part in parts:
        text = part.encode("utf-8", "surrogatepass")
        after = hashlib.blake2b(b"%d:%b%b" % (len(text), text, after), digest_size=12).digest()
        blocks.append(Block(after, max(1, -(-len(part) // CHARACTERS_PER_TOKEN))))
    return tuple(blocks)


class PrefixCache:
    """The part of the KV cache that no running request needs, bounded in tokens."""

    def __init__(self, *, capacity_tokens: int) -> None:
        self.tokens = 0
        """Tokens held now."""
        self._limit_tokens = capacity_tokens
        self._blocks: OrderedDict[bytes, int] = OrderedDict()

    def match(self, prompt: Sequence[Block]) -> int:
        """Count the prompt's tokens that are here, from its start up to the first block that is not.

        What matches becomes the most recently used, the beginning most of all: like vLLM, the cache
        drops the end of a conversation before its beginning, without which the end is worthless.
        """
        matched = []
        for block in prompt:
            if block.hash not in self._blocks:
                break
            matched.append(block)
        for block in reversed(matched):
            self._blocks.move_to_end(block.hash)
        return sum(block.tokens for block in matched)

    def insert(self, prompt: Sequence[Block]) -> None:
        """Remember a whole prompt as the most recently used, as far as there is room."""
        for block in reversed(prompt):
            if block.hash not in self._blocks:
                self.tokens += block.tokens
            self._blocks[block.hash] = block.tokens
            self._blocks.move_to_end(block.hash)
        self._evict()

    def limit(self, tokens: int) -> None:
        """Set how many tokens may stay; running requests need the rest."""
        self._limit_tokens = tokens
        self._evict()

    def _evict(self) -> None:
        while self.tokens > self._limit_tokens and self._blocks:
            _, tokens = self._blocks.popitem(last=False)
            self.tokens -= tokens
