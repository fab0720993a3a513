"""Requests that a PersistentKernel takes while it runs (mode="online_pinned"): which wait, which have a slot, what was made.

Two threads are at work meanwhile. One waits for the first request, has a small kernel lay out its rows, and runs the
kernel. The other reads its mail, tells those who wait, and begins the next request where a slot has become free. A slot's
pages stay as they are when its request ends, so a request that begins with the same tokens, as the next turn of a
conversation does, gets that slot and goes on behind them.
"""

from __future__ import annotations

import collections
import threading
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence

from megalith import _megalith
from megalith._megalith import UserError

_LOOK_MS = 50  # how often the reader of a kernel without mail looks whether it has ended
_REASONS = {1: "stop", 2: "length", 3: "abort"}  # runtime/batch.h, FinishReason


class Served:
    """A request. ``tokens``: its prompt and what was made until now; ``reason``: None until it has ended."""

    __slots__ = ("rid", "tokens", "num_prompt", "limit", "row", "reason", "num_kept")

    def __init__(self, rid: int, prompt: Sequence[int], limit: int):
        self.rid = rid
        self.tokens = list(prompt)
        self.num_prompt = len(self.tokens)
        self.limit = limit
        self.row = -1  # its slot, and row of the meta tensor `tokens`; -1: none yet
        self.reason: Optional[str] = None
        self.num_kept = 0  # tokens that it did not have to work through

    @property
    def step(self) -> int:
        """The position of its last token."""
        return len(self.tokens) - 1


def _num_common(a: Sequence[int], b: Sequence[int]) -> int:
    length = min(len(a), len(b))
    return next((i for i in range(length) if a[i] != b[i]), length)


class ServedRequests:
    """All of it, from the first launch to the end of the last; any thread may call it."""

    def __init__(self, num_slots: int, max_seq_length: int):
        self.max_seq_length = max_seq_length
        self._changed = threading.Condition()
        self._waiting: Deque[Served] = collections.deque()
        self._requests: Dict[int, Served] = {}
        self._slots: List[Optional[Served]] = [None] * num_slots
        self._kept: List[List[int]] = [[] for _ in range(num_slots)]  # tokens whose keys a slot's pages hold
        self._ages = list(range(num_slots))  # when each was used last
        self._age = num_slots
        self._service: Optional[_megalith.GraphService] = None  # of the kernel while it takes requests
        self._cancel: Optional[Callable[[], None]] = None
        self._late: List[int] = []  # slots whose requests were cancelled before that
        self._threads: List[threading.Thread] = []
        self._is_ending = self._has_told_end = self._is_closed = False
        self._error: Optional[BaseException] = None

    # ---- the run ----------------------------------------------------------------------------------------------

    def launch(self, run: Callable[["ServedRequests"], None]) -> None:
        """Begins a run: ``run`` calls first_requests() and then serve(), and returns when it is over. UserError while
        there is one."""
        with self._changed:
            if self.is_running:
                raise UserError("[__call__] the kernel runs already: submit requests to it, or end it with shutdown()")
            self._error = self._cancel = None
            self._is_ending = self._has_told_end = self._is_closed = False
            for slot in range(len(self._kept)):
                self._kept[slot] = []  # other runs may have written there meanwhile
            self._threads = [threading.Thread(target=self._run, args=(run,), name="a kernel's run", daemon=True)]
            self._threads[0].start()

    def _run(self, run: Callable[["ServedRequests"], None]) -> None:
        error: Optional[BaseException] = None
        try:
            run(self)
        except BaseException as caught:  # it is raised where somebody waits
            error = caught
        with self._changed:
            self._service, self._error = None, error
            threads = self._threads[1:]
        for reader in threads:
            reader.join()
        with self._changed:  # those that the run has left behind
            for slot, request in enumerate(self._slots):
                if request is not None:
                    self._kept[slot] = []
                    self._slots[slot] = None
                    request.reason = "abort"
            self._changed.notify_all()

    def first_requests(self, runner: _megalith.GraphRunner) -> bool:
        """Waits for requests, and has ``runner`` lay out their rows. False: none will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_ending or self._is_closed)
            if not self._waiting or self._is_closed:
                return False
            service = _megalith.GraphService(runner)
            service.open()
            self._begin_waiting(service)
        runner.run(1)
        return True

    def serve(self, runner: _megalith.GraphRunner) -> None:
        """Runs the kernel, behind first_requests()."""
        service = _megalith.GraphService(runner)
        service.open()
        reader = threading.Thread(target=self._read, args=(service,), name="a kernel's mail", daemon=True)
        with self._changed:
            if self._is_closed:
                return
            self._service, self._cancel = service, runner.cancel
            self._threads.append(reader)
            for slot in self._late:
                service.cancel(slot)
            self._late = []
            self._begin_waiting(service)
        reader.start()
        runner.run(0)

    def _read(self, service: _megalith.GraphService) -> None:
        while True:
            is_over = self._service is not service  # before the look, for what comes in between
            mail = service.take(_LOOK_MS)
            if mail:
                with self._changed:
                    for is_end, slot, token, reason in mail:
                        self._end(slot, reason) if is_end else self._made(slot, token)
                    self._begin_waiting(self._service)
                    self._changed.notify_all()
            elif is_over:
                break

    def _made(self, slot: int, token: int) -> None:
        request = self._slots[slot]
        if request is not None:
            request.tokens.append(token)

    def _end(self, slot: int, reason: int) -> None:
        request, self._slots[slot] = self._slots[slot], None
        if request is None:
            return
        # Of the last token no keys are made, and of a prompt that was left in the middle nobody knows how many.
        self._kept[slot] = request.tokens[:-1] if len(request.tokens) > request.num_prompt else []
        self._age += 1
        self._ages[slot] = self._age
        request.reason = _REASONS.get(reason, "abort")

    def _begin_waiting(self, service: Optional[_megalith.GraphService]) -> None:
        if service is None:
            return
        while self._waiting and None in self._slots:
            request = self._waiting.popleft()
            free = [slot for slot, at_work in enumerate(self._slots) if at_work is None]
            common = {slot: _num_common(self._kept[slot], request.tokens[:-1]) for slot in free}
            slot = max(free, key=lambda one: (common[one], -self._ages[one]))
            self._slots[slot] = request
            request.row, request.num_kept = slot, common[slot]
            service.begin(slot, request.tokens, common[slot], request.limit)
        if self._is_ending and not self._waiting and not self._has_told_end and service is self._service:
            self._has_told_end = True
            service.end()

    # ---- for everybody ----------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def submit(self, rid: int, prompt: Sequence[int], limit: int) -> bool:
        """Whether it has begun; else it waits for a slot, or for the launch."""
        with self._changed:
            if rid in self._requests:
                raise UserError(f"[submit] there is a request {rid} already: take another number, or release it first")
            if self._is_ending:
                raise UserError(f"[submit] the kernel is ending, so request {rid} would not be worked on")
            request = self._requests[rid] = Served(rid, prompt, limit)
            self._waiting.append(request)
            self._begin_waiting(self._service)
            self._changed.notify_all()
            return request.row >= 0

    def get(self, rid: int) -> Optional[Served]:
        with self._changed:
            return self._requests.get(rid)

    def at_row(self, row: int) -> Optional[Served]:
        """The request at work there, or the one that was last."""
        with self._changed:
            if 0 <= row < len(self._slots) and self._slots[row] is not None:
                return self._slots[row]
            ended = [r for r in self._requests.values() if r.row == row and r.reason is not None]
            return ended[-1] if ended else None

    def ended(self) -> List[Served]:
        with self._changed:
            return [request for request in self._requests.values() if request.reason is not None]

    @property
    def num_waiting(self) -> int:
        with self._changed:
            return len(self._waiting)

    def wait_for(self, rid: int, timeout: Optional[float]) -> Served:
        """The request when it has ended. TimeoutError if that takes too long; what ended the run is raised."""
        with self._changed:
            request = self._requests.get(rid)
            if request is None:
                raise UserError(f"[wait_for_request] there is no request {rid}: submit it first")
            self._changed.wait_for(lambda: request.reason is not None or self._error is not None, timeout)
            if request.reason is None or request.reason == "abort":
                self._raise_error()
            if request.reason is None:
                raise TimeoutError(f"[wait_for_request] request {rid} has not ended after {timeout:g} s")
            return request

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def cancel(self, rid: int) -> None:
        """Ends it now: what is made is there. If it has ended: nothing."""
        with self._changed:
            request = self._requests.get(rid)
            if request is None or request.reason is not None:
                return
            if request in self._waiting:
                self._waiting.remove(request)
                request.reason = "abort"
                self._changed.notify_all()
            elif self._service is not None:
                self._service.cancel(request.row)
            else:
                self._late.append(request.row)

    def release(self, rid: int) -> bool:
        """Forgets a request that has ended."""
        with self._changed:
            request = self._requests.get(rid)
            if request is None or request.reason is None:
                return False
            del self._requests[rid]
            return True

    def forget(self) -> None:
        """All that have ended; and if the run has, that it was told to."""
        with self._changed:
            self._is_ending = self._is_ending and self.is_running
            self._requests = {rid: request for rid, request in self._requests.items() if request.reason is None}

    def shut_down(self) -> None:
        """The run ends when all that was submitted has; nothing more is taken before the next launch."""
        with self._changed:
            if self.is_running:
                self._is_ending = True
                self._begin_waiting(self._service)
                self._changed.notify_all()

    def wait(self) -> None:
        """Until the run is over; raises what ended it."""
        for thread in self._threads[:1]:
            thread.join()
        with self._changed:
            self._raise_error()

    def close(self) -> None:
        """Ends a run at once."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads[:1]:
            while thread.is_alive():
                with self._changed:
                    cancel = self._cancel
                if cancel is not None:
                    cancel()  # again and again, for before its beginning it would be no use
                thread.join(0.05)


def tokens_of(what: str, value: Any, vocabulary: int, longest: int) -> List[int]:
    """A prompt: a list, or a tensor of one dimension."""
    listed = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(listed, (list, tuple)) or not all(isinstance(t, int) and not isinstance(t, bool) for t in listed):
        raise UserError(
            f"[{what}] token_ids is a {type(value).__name__}, want token ids: a list, or a tensor of one dimension"
        )
    if not 1 <= len(listed) < longest:
        raise UserError(
            f"[{what}] token_ids has {len(listed)} tokens, want 1 to {longest - 1}: max_seq_length is {longest}, and a "
            "token is to be made"
        )
    for i, token in enumerate(listed):
        if not 0 <= token < vocabulary:
            raise UserError(f"[{what}] token_ids has {token} at [{i}], but the vocabulary has {vocabulary}")
    return list(listed)
