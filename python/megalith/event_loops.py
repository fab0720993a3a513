"""Answers that are awaited in asyncio: the engine wakes a loop by a descriptor that the loop watches, one for all answers that
are read there. No thread waits for any of them, and none of the engine's threads runs Python."""

from __future__ import annotations

import asyncio
import weakref
from typing import Dict, List

from megalith import _megalith


class LoopWakeup:
    """Wakes what waits in one loop. It lives as long as the loop, and holds it only while something waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._wakeup = _megalith.Wakeup()
        self._waiting: Dict[int, List["asyncio.Future[None]"]] = {}  # by the answers' ids
        loop.add_reader(self._wakeup.fileno(), self._wake)

    def _wake(self) -> None:
        for answer in self._wakeup.take():
            for future in self._waiting.pop(answer, ()):
                if not future.done():
                    future.set_result(None)

    async def wait(self, answer: _megalith.Answer, is_end: bool) -> None:
        """Until the answer has a piece or its end, or its end; or a little less, since others wait for it as well. If the
        waiting is cancelled and nobody else waits, nobody wants the answer: it is aborted."""
        future: "asyncio.Future[None]" = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(answer.id, []).append(future)
        try:
            if answer.wake(self._wakeup, is_end=is_end):
                await future
        except asyncio.CancelledError:
            if self._waiting.get(answer.id, [future]) == [future]:
                answer.abort()
            raise
        finally:
            futures = self._waiting.get(answer.id, [])
            if future in futures:
                futures.remove(future)
                if not futures:
                    del self._waiting[answer.id]


_wakeups: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWakeup]" = weakref.WeakKeyDictionary()


def wakeup_of_loop() -> LoopWakeup:
    """That of the running loop."""
    loop = asyncio.get_running_loop()
    found = _wakeups.get(loop)
    if found is None:
        found = _wakeups[loop] = LoopWakeup(loop)
    return found
