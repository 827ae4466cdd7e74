"""Streams as one: order, errors, and that nothing is left open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from octavo.server.openai.merge import merge


class Source:
    """Yields numbers; remembers whether it was closed."""

    def __init__(self, count: int, fail: bool = False) -> None:
        self.count = count
        self.fail = fail
        self.closed = False

    async def run(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(self.count):
                await asyncio.sleep(0)
                yield number
            if self.fail:
                raise ValueError("broken")
        finally:
            self.closed = True


@pytest.mark.parametrize("counts", [[3], [3, 0, 2], [0, 0], [1] * 20])
async def test_every_item_comes_once_and_in_its_sources_order(counts: list[int]) -> None:
    sources = [Source(count) for count in counts]
    items = [item async for item in merge([source.run() for source in sources])]
    for number, count in enumerate(counts):
        assert [item for place, item in items if place == number] == list(range(count))
    assert all(source.closed for source in sources)


@pytest.mark.parametrize("others", [0, 2])
async def test_an_error_ends_all(others: int) -> None:
    sources = [Source(2, fail=True), *(Source(10**9) for _ in range(others))]
    with pytest.raises(ValueError, match="broken"):
        async for _ in merge([source.run() for source in sources]):
            pass
    assert all(source.closed for source in sources)


@pytest.mark.parametrize("count", [1, 3])
async def test_closing_closes_all(count: int) -> None:
    sources = [Source(10**9) for _ in range(count)]
    merged = merge([source.run() for source in sources])
    for _ in range(5):
        await anext(merged)
    await merged.aclose()
    assert all(source.closed for source in sources)
