"""The timing model of one model server: continuous batching, one step at a time.

Like vLLM, the engine works in steps. A step computes one token for each request that is decoding
and a chunk of the prompts of those that are not yet, first come first served, and takes::

    ( (1 + batch slowdown · (decoding - 1)) / decode rate  +  prompt tokens / prefill rate )
        / speed · slow factor

(the first term only if anything is decoding). So tokens come slower in a fuller batch, and somebody
else's long prompt delays them too. The step that finishes a prompt gives its first token. A request
enters the batch when there is a place and room for its prompt and answer in the KV cache, and skips
the part of its prompt that is in the cache (never the last token).

Pure: time comes in as an argument and nothing sleeps. `wake_at` says when to come back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Interval

from controlplane.sim.cache import Block, PrefixCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What kind of server it is. Rates are of speed 1, for one request alone."""

    speed: float = 1.0
    """GPU class, in multiples of the slowest."""
    max_running: int = 8
    """Places in the batch; further requests wait."""
    max_waiting: int = 1_000
    """Places in the queue; further requests are turned away."""
    prefill_tokens_per_second: float = 4_000.0
    prefill_chunk_tokens: int = 512
    """Most prompt tokens in one step."""
    decode_tokens_per_second: float = 40.0
    batch_slowdown_ratio: float = 0.05
    """How much longer a step takes for each further request that is decoding."""
    kv_capacity_tokens: int = 60_000
    mean_answer_tokens: int = 32
    """Answers have half to one and a half times as many, unless the request says otherwise."""
    cold_start_seconds: float = 0.0
    """Time after the start during which nothing is answered."""

    def step_seconds(self, *, decoding: int, prompt_tokens: int) -> float:
        """Give the time of one step without faults."""
        crowd = 1.0 + self.batch_slowdown_ratio * (decoding - 1)
        decode = crowd / self.decode_tokens_per_second if decoding else 0.0
        return (decode + prompt_tokens / self.prefill_tokens_per_second) / self.speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong with a server right now. The defaults are a healthy one."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "allow_inf_nan": False}
    slow_factor: Annotated[float, Interval(ge=0.01, le=1_000)] = 1.0
    """Every step takes this many times as long."""
    error_ratio: Annotated[float, Interval(ge=0, le=1)] = 0.0
    """Share of requests answered at once with status 500."""
    hang: bool = False
    """Requests are taken and not answered; health and metrics go on, as with a stuck GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request, as far as timing goes."""

    prompt: tuple[Block, ...]
    output_tokens: int
    answer: tuple[Block, ...] = ()
    """What the cache learns when the answer is complete."""

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return sum(block.tokens for block in self.prompt)

    @property
    def total_tokens(self) -> int:
        """Room the request needs in the KV cache: prompt and answer."""
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Token:
    """One token came out. Times are in seconds, `at` on the caller's clock."""

    job_id: int
    at: float
    index: int
    gap_seconds: float
    """Since the token before; for the first, since the request arrived."""
    elapsed_seconds: float
    """Since the request arrived."""
    cached_tokens: int
    """Prompt tokens that were in the cache."""
    is_last: bool


@dataclass(slots=True)
class _Request:
    id: int
    job: Job
    prompt_tokens: int
    arrived_at: float
    cached_tokens: int = 0
    prompt_left: int = 0
    chunk: int = 0
    """Prompt tokens that the step under way computes."""
    produced: int = 0
    last_at: float = 0.0


class Engine:
    """Queue, batch and cache of one server.

    `now` never runs backwards from call to call. Not for use from two threads at once.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.fault = Fault()
        """Change it with `set_fault`."""
        self.busy_seconds = 0.0
        """Time spent in finished steps."""
        self.hit_tokens = 0
        self.queried_tokens = 0
        """Prompt tokens looked up in the cache, of which `hit_tokens` were there."""
        self._cache = PrefixCache(capacity_tokens=profile.kv_capacity_tokens)
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._step_began_at = 0.0
        self._step_ends_at: float | None = None
        self._tokens: list[Token] = []
        self._next_id = 0

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Tell if there is no place left, neither in the batch nor in the queue."""
        profile = self.profile
        return self.running >= profile.max_running and self.waiting >= profile.max_waiting

    @property
    def kv_usage_ratio(self) -> float:
        """Share of the KV cache that running requests fill, 0 to 1; a shared prefix counts for each."""
        used = sum(request.prompt_tokens + request.produced for request in self._running)
        return min(1.0, used / self.profile.kv_capacity_tokens)

    @property
    def wake_at(self) -> float | None:
        """When the step under way ends; `None` while there is nothing to do."""
        return self._step_ends_at

    def accepts(self, job: Job) -> bool:
        """Tell if the request can ever fit the KV cache."""
        return job.output_tokens >= 1 and job.total_tokens <= self.profile.kv_capacity_tokens

    def submit(self, job: Job, now: float) -> int:
        """Take a request; give the id that its tokens will bear.

        Raises:
            ValueError: if it can never fit (`accepts`).
        """
        if not self.accepts(job):
            raise ValueError(f"{job.total_tokens} tokens do not fit the KV cache")
        self._run_until(now)
        self._next_id += 1
        self._waiting.append(_Request(self._next_id, job, job.prompt_tokens, arrived_at=now))
        if self._step_ends_at is None:
            self._begin_step(now)
        return self._next_id

    def cancel(self, job_id: int, now: float) -> None:
        """Forget a request, wherever it is; the step under way goes on without it."""
        self._run_until(now)
        self._waiting = deque(request for request in self._waiting if request.id != job_id)
        self._running = [request for request in self._running if request.id != job_id]

    def set_fault(self, fault: Fault, now: float) -> None:
        """Change what is wrong; the rest of the step under way goes at the new pace."""
        self._run_until(now)
        pace = fault.slow_factor / self.fault.slow_factor
        self.fault = fault
        if fault.hang:
            self._step_ends_at = None
        elif self._step_ends_at is None:
            self._begin_step(now)
        else:
            self._step_ends_at = now + (self._step_ends_at - now) * pace

    def advance(self, now: float) -> list[Token]:
        """Work until `now`; give the tokens that came out since the last call, in order."""
        self._run_until(now)
        tokens, self._tokens = self._tokens, []
        return tokens

    def _run_until(self, now: float) -> None:
        while self._step_ends_at is not None and self._step_ends_at <= now:
            ended_at = self._step_ends_at
            self.busy_seconds += ended_at - self._step_began_at
            self._end_step(ended_at)
            self._begin_step(ended_at)

    def _begin_step(self, at: float) -> None:
        self._step_ends_at = None
        if self.fault.hang:
            return
        self._admit()
        if not self._running:
            return
        budget = self.profile.prefill_chunk_tokens
        for request in self._running:
            request.chunk = min(budget, request.prompt_left)
            budget -= request.chunk
        seconds = self.profile.step_seconds(
            decoding=sum(not request.prompt_left for request in self._running),
            prompt_tokens=self.profile.prefill_chunk_tokens - budget,
        )
        self._step_began_at = at
        self._step_ends_at = at + seconds * self.fault.slow_factor

    def _end_step(self, at: float) -> None:
        for request in self._running:
            if request.prompt_left:
                request.prompt_left -= request.chunk
                if request.prompt_left:
                    continue
                self._cache.insert(request.job.prompt)
            self._emit(request, at)
        finished = [request for request in self._running if request.produced == request.job.output_tokens]
        for request in finished:
            self._running.remove(request)
            self._cache.insert(request.job.answer)
        self._make_room()

    def _emit(self, request: _Request, at: float) -> None:
        since = request.last_at if request.produced else request.arrived_at
        request.produced += 1
        request.last_at = at
        self._tokens.append(
            Token(
                job_id=request.id,
                at=at,
                index=request.produced - 1,
                gap_seconds=at - since,
                elapsed_seconds=at - request.arrived_at,
                cached_tokens=request.cached_tokens,
                is_last=request.produced == request.job.output_tokens,
            ),
        )

    def _admit(self) -> None:
        reserved = sum(request.job.total_tokens for request in self._running)
        while self._waiting and len(self._running) < self.profile.max_running:
            request = self._waiting[0]
            reserved += request.job.total_tokens
            if reserved > self.profile.kv_capacity_tokens:
                break
            self._running.append(self._waiting.popleft())
            request.cached_tokens = self._cache.match(request.job.prompt)
            request.prompt_left = max(1, request.prompt_tokens - request.cached_tokens)
            self.queried_tokens += request.prompt_tokens
            self.hit_tokens += request.cached_tokens
        self._make_room()

    def _make_room(self) -> None:
        """Leave to the cache what running requests do not need for themselves."""
        private = sum(
            request.job.output_tokens
            + (request.prompt_tokens - request.cached_tokens if request.prompt_left else 0)
            for request in self._running
        )
        self._cache.limit(self.profile.kv_capacity_tokens - private)
