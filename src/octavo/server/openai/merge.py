"""Several streams as one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


async def merge(sources: Sequence[AsyncGenerator[Item, None]]) -> AsyncGenerator[tuple[int, Item], None]:
    """Items of all ``sources`` as they come, each with the number of its source; the first error ends it.

    Whatever ends it, all sources are closed before it returns.
    """
    if len(sources) == 1:
        async with contextlib.aclosing(sources[0]) as only:
            async for item in only:
                yield 0, item
        return
    queue: asyncio.Queue[tuple[int, Item] | Exception | None] = asyncio.Queue()

    async def pump(number: int, source: AsyncGenerator[Item, None]) -> None:
        try:
            async with contextlib.aclosing(source):
                async for item in source:
                    queue.put_nowait((number, item))
        except Exception as error:
            queue.put_nowait(error)
        else:
            queue.put_nowait(None)

    tasks = [asyncio.create_task(pump(number, source)) for number, source in enumerate(sources)]
    try:
        running = len(tasks)
        while running:
            entry = await queue.get()
            if isinstance(entry, Exception):
                raise entry
            if entry is None:
                running -= 1
            else:
                yield entry
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
