"""``mirage.mpk.online_pinned_runtime``: the host's side of mode="online_pinned" under MPK's names."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from megalith._megalith import UserError
from megalith.arguments import number, whole
from megalith.persistent_kernel import PersistentKernel
from megalith.served_requests import Served, ServedRequests, tokens_of

_MOST = 2**31 - 1
_MOST_SECONDS = 1e9


class OnlinePinnedRuntime:
    """Submits requests to a kernel that runs, and reads what it makes::

        runtime = OnlinePinnedRuntime(kernel)
        kernel()                                          # returns at once
        runtime.submit(rid=0, token_ids=[5, 9, 200])
        row, step = runtime.wait_for_request(rid=0, timeout=60)
        tokens = runtime.read_tokens_at_row(row, step)    # prompt and answer
        runtime.shutdown()
        kernel.wait()

    ``mpk``: a PersistentKernel of mode="online_pinned", or something that has one as ``persistent_kernel``. Threads may
    call it at once.
    """

    def __init__(self, mpk: Any):
        kernel = mpk if isinstance(mpk, PersistentKernel) else getattr(mpk, "persistent_kernel", None)
        if not isinstance(kernel, PersistentKernel) or kernel.mode != "online_pinned":
            found = f'of mode="{kernel.mode}"' if isinstance(kernel, PersistentKernel) else f"in a {type(mpk).__name__}"
            raise UserError(f'[OnlinePinnedRuntime] there is a kernel {found}, want one of mode="online_pinned"')
        self._kernel = kernel

    @property
    def _served(self) -> ServedRequests:
        return self._kernel.served

    # ---- requests ---------------------------------------------------------------------------------------------

    def submit(
        self, rid: int, token_ids: Any, initial_step: int = 0, *, max_new_tokens: Optional[int] = None
    ) -> bool:
        """A request under a number that no other has. It ends with eos_token_id, at max_seq_length or behind
        ``max_new_tokens``. True if it has begun, False if it waits for a slot or for the launch; any number may wait.
        ``initial_step`` is not looked at: where an earlier request began with the same tokens, the kernel knows."""
        rid = whole("submit", "rid", rid, 0, _MOST)
        whole("submit", "initial_step", initial_step, 0, _MOST)
        longest = self._kernel.max_seq_length
        prompt = tokens_of("submit", token_ids, self._kernel._vocabulary, longest)
        limit = longest
        if max_new_tokens is not None:
            limit = min(longest, len(prompt) + whole("submit", "max_new_tokens", max_new_tokens, 1, _MOST))
        return self._served.submit(rid, prompt, limit)

    def wait_for_request(self, rid: int, timeout: float = 60.0, poll_interval: float = 1e-4) -> Tuple[int, int]:
        """(row, position of the last token), when it has ended. TimeoutError after ``timeout`` seconds; it goes on then.
        What ended the kernel is raised. Nothing is polled."""
        seconds = number("wait_for_request", "timeout", timeout, 0)
        request = self._served.wait_for(rid, min(seconds, _MOST_SECONDS))
        return request.row, request.step

    def get_completion(self, rid: int) -> Optional[Tuple[int, int]]:
        """The same without waiting; None until it has ended."""
        request = self._served.get(rid)
        return None if request is None or request.reason is None else (request.row, request.step)

    def drain_completions(self) -> List[Tuple[int, int, int]]:
        """(rid, row, position of the last token) of all that have ended and were not released."""
        return [(request.rid, request.row, request.step) for request in self._served.ended()]

    def cancel_request(self, rid: int) -> None:
        """Ends it now; what is made is there."""
        self._served.cancel(rid)

    def release_request(self, rid: int) -> bool:
        """Forgets one that has ended. Slots need no such word: each is free when its request has ended."""
        return self._served.release(rid)

    def abandon_request(self, rid: int) -> None:
        """Ends it and forgets it."""
        self._served.cancel(rid)
        self._served.release(rid)

    @property
    def waiting_count(self) -> int:
        """Requests that wait for a slot."""
        return self._served.num_waiting

    # ---- tokens -----------------------------------------------------------------------------------------------

    def get_output_tokens(self, rid: int) -> Any:
        """Prompt and what was made until now, as an int64 array: of this request, whoever has its row by now."""
        request = self._served.get(rid)
        if request is None:
            raise UserError(f"[get_output_tokens] there is no request {rid}: submit it first")
        return self._array(request, 0, len(request.tokens))

    def read_tokens_at_row(self, buffer_row: int, final_step: int) -> Any:
        """Tokens 0 to ``final_step`` of the request at work in a row, or of the one that was last."""
        return self.read_tokens_range(buffer_row, 0, final_step)

    def read_tokens_range(self, buffer_row: int, start: int, end: int) -> Any:
        """Tokens ``start`` to ``end``, likewise."""
        request = self._served.at_row(whole("read_tokens_range", "buffer_row", buffer_row, 0, _MOST))
        if request is None:
            raise UserError(f"[read_tokens_range] no request was in row {buffer_row}")
        last = len(request.tokens) - 1
        start = whole("read_tokens_range", "start", start, 0, last)
        return self._array(request, start, whole("read_tokens_range", "end", end, start - 1, last) + 1)

    @staticmethod
    def _array(request: Served, start: int, end: int) -> Any:
        import numpy

        return numpy.array(request.tokens[start:end], numpy.int64)

    def get_current_step_at_row(self, buffer_row: int) -> int:
        """The position of the last token there; -1 if no request was in that row."""
        request = self._served.at_row(buffer_row)
        return -1 if request is None else request.step

    def find_row_for_rid(self, rid: int) -> int:
        """-1 if it has none yet."""
        request = self._served.get(rid)
        return -1 if request is None else request.row

    # ---- the run ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Nothing is to be started: the kernel reads its mail itself while it runs."""

    stop = start

    def reset(self) -> None:
        """Forgets all requests that have ended."""
        self._served.forget()

    def request_shutdown(self) -> None:
        """The kernel ends when all that was submitted has ended; kernel.wait() waits for that."""
        self._served.shut_down()

    def shutdown(self) -> None:
        """The same."""
        self._served.shut_down()
