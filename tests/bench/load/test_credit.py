from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from octavo.bench.load.credit import Piece, credit, tokens_by_text
from octavo.bench.load.records import RequestRecord


def words(text: str) -> int:
    return len(text.split())


def tokens(pieces: list[Piece], total: int | None, count: object = None) -> list[int]:
    return [chunk.tokens for chunk in credit(pieces, total, count)[0]]  # type: ignore[arg-type]


def test_bm_01_ten_tokens_two_a_chunk_100_ms_apart() -> None:
    pieces = [Piece(0.1 * i, " a b", 2 * i + 2) for i in range(5)]
    for each in (pieces, [piece._replace(so_far=None) for piece in pieces]):
        record = RequestRecord(index=0, kind="", tenant=None, prompt_tokens=1, output_tokens=10, scheduled=0.0)
        record.chunks, _ = credit(each, 10, words)
        assert len(record.gaps) == 9
        assert sum(record.gaps) == 0.4
        assert 1000 * sum(record.gaps) / 9 == 1000 * (record.tpot or 0)
        assert 44.4 < 1000 * sum(record.gaps) / 9 < 44.5


def test_bm_04_a_tokenizer_that_adds_bos_each_time_is_overruled_by_the_usage() -> None:
    pieces = [Piece(0.1 * i, f" w{i}" if i else " w x y") for i in range(8)]
    with_bos = lambda text: words(text) + 1  # noqa: E731
    assert tokens(pieces, 10, with_bos) == [3, 1, 1, 1, 1, 1, 1, 1]
    assert tokens(pieces, 8, with_bos) == [1] * 8  # as many as events: one each, whatever the text says


def test_the_servers_running_counts_are_exact() -> None:
    pieces = [Piece(0.0, "a", 1), Piece(0.1, "b c", 4), Piece(0.2, "", 5), Piece(0.3, "d", 6)]
    chunks, counted = credit(pieces, 6, None)
    assert ([chunk.tokens for chunk in chunks], counted) == ([1, 3, 1, 1], "events")


def test_tokens_before_the_first_text_arrive_with_it() -> None:
    chunks, _ = credit([Piece(0.0, "", 1), Piece(0.1, "", 2), Piece(0.2, "é", 3), Piece(0.3, "a", 4)], 4, None)
    assert [(chunk.time, chunk.tokens) for chunk in chunks] == [(0.2, 3), (0.3, 1)]


def test_a_token_without_text_amid_an_answer_counts_when_it_came() -> None:
    chunks, _ = credit([Piece(0.0, "a", 1), Piece(0.1, "", 2), Piece(0.2, "é", 3)], 3, None)
    assert [chunk.time for chunk in chunks] == [0.0, 0.1, 0.2]


def test_text_without_a_token_of_its_own_is_no_arrival() -> None:
    chunks, _ = credit([Piece(0.0, "a", 1), Piece(0.1, "held back", 1), Piece(0.2, "b", 2)], 2, None)
    assert [chunk.time for chunk in chunks] == [0.0, 0.2]


def test_without_any_count_an_event_is_taken_for_a_token_and_that_is_said() -> None:
    chunks, counted = credit([Piece(0.0, "a b"), Piece(0.1, "c")], None, None)
    assert ([chunk.tokens for chunk in chunks], counted) == ([1, 1], "chunks")


def test_an_answer_without_text_has_no_chunks() -> None:
    assert credit([Piece(0.0, "", 1)], 1, None)[0] == []


def test_a_usage_of_more_tokens_than_were_seen_is_shared_out() -> None:
    assert tokens([Piece(0.0, "a"), Piece(0.1, "b"), Piece(0.2, "c")], 8) == [2, 3, 3]


def test_a_usage_of_fewer_tokens_than_events_keeps_the_ends() -> None:
    chunks, _ = credit([Piece(0.1 * i, "a") for i in range(5)], 3, None)
    assert [round(chunk.time, 1) for chunk in chunks] == [0.0, 0.1, 0.4]


@given(
    st.lists(st.tuples(st.sampled_from(["", "a", " b", " b c d"]), st.none() | st.integers(0, 20)), max_size=12),
    st.none() | st.integers(0, 40),
    st.booleans(),
)
def test_chunks_rise_and_add_up(given_pieces: list[tuple[str, int | None]], total: int | None, counts: bool) -> None:
    pieces = [Piece(float(i), text, so_far) for i, (text, so_far) in enumerate(given_pieces)]
    chunks, _ = credit(pieces, total, words if counts else None)
    texts = [piece.time for piece in pieces if piece.text]
    assert bool(chunks) == bool(texts)
    if chunks:
        assert chunks[0].time == texts[0]
        assert all(chunk.tokens >= 1 for chunk in chunks)
        assert all(a.time < b.time for a, b in pairwise(chunks))
        assert not total or sum(chunk.tokens for chunk in chunks) == total


@given(st.lists(st.sampled_from(["the", " quick", " b", "rown fox", " jumps over", "."]), max_size=300))
def test_counting_by_windows_adds_up_to_the_whole_text(texts: list[str]) -> None:
    """With a tokenizer whose tokens do not reach over a word's end, cut anywhere."""
    assert sum(tokens_by_text(texts, words)) == words("".join(texts))
