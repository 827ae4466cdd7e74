"""Prompts: exact numbers of tokens by real tokenizers, as ids and as text; what is shared, what is not, and what a salt changes."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.bench.workload.arrivals import Arrivals
from octavo.bench.workload.file import load_workload, parse_workload
from octavo.bench.workload.lengths import Fixed
from octavo.bench.workload.prompts import Part, Writer
from octavo.bench.workload.requests import DrawnRequest, RequestKind, SharedPrefix, Workload
from octavo.bench.workload.text import PromptText, built_in, read_prompt_file
from octavo.bench.workload.tokens import Tokens
from octavo.errors import InvalidRequestError
from octavo.tokenizer.chat_template import ChatTemplate
from octavo.tokenizer.load import load_tokenizer
from octavo.tokenizer.tokenizer import Tokenizer
from support.toy_tokenizer import byte_level, write_tokenizer

EXAMPLES = Path(__file__).parents[3] / "examples" / "workloads"
CJK = PromptText(file="cjk.txt", text="天地玄黄宇宙洪荒。日月盈昃，辰宿列张。🌍 Naïve café —\n" * 3)


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Tokens:
    return Tokens.of(load_tokenizer(smollm2_path))


@pytest.fixture(scope="module")
def gemma(gemma3_path: Path) -> Tokens:
    """A tokenizer that begins every text with BOS."""
    return Tokens.of(load_tokenizer(gemma3_path))


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    """Each byte a token, and no more: half of a character is a token like any other, and no token is a word."""
    folder = tmp_path_factory.mktemp("toy")
    write_tokenizer(folder, byte_level()[0])
    return Tokens.of(load_tokenizer(folder))


@pytest.fixture(params=["smollm2", "gemma", "toy"])
def tokens(request: pytest.FixtureRequest) -> Tokens:
    found: Tokens = request.getfixturevalue(request.param)
    return found


def proven(tokenizer: Tokenizer, request: DrawnRequest, count: int) -> bool:
    """Whether its text has exactly those ``count`` tokens, encoded anew and without BOS, and none of them is special."""
    assert request.prompt_text is not None
    ids = tokenizer.encode(request.prompt_text, add_special_tokens=False)
    return len(ids) == count and ids == request.prompt_token_ids and not tokenizer.special_ids.intersection(ids)


def workload(prompt: PromptText | None, own: int, prefix: int = 0, **changes: Any) -> Workload:
    kind = RequestKind(
        name="k",
        prompt=prompt,
        prompt_tokens=Fixed(own),
        output_tokens=Fixed(1),
        max_tokens=Fixed(1),
        shared_prefix=SharedPrefix(tokens=prefix) if prefix else None,
    )
    return dataclasses.replace(Workload(name="w", arrivals=Arrivals(process="at_once"), requests=(kind,), num_requests=12), **changes)


@pytest.mark.parametrize("prompt", [None, built_in(), CJK], ids=["random", "text", "cjk"])
@pytest.mark.parametrize(("prefix", "own"), [(0, 1), (0, 2), (0, 37), (0, 700), (100, 1), (300, 45)])
def test_prompts_have_exactly_the_tokens_asked_for(tokens: Tokens, prompt: PromptText | None, prefix: int, own: int) -> None:
    load = workload(prompt, own, prefix)
    assert [len(r.prompt_token_ids) for r in load.draw(tokens)] == [prefix + own] * 12
    drawn = load.draw(tokens, as_text=True)
    assert all(proven(tokens.tokenizer, request, prefix + own) for request in drawn)
    texts = [request.prompt_text or "" for request in drawn]
    assert len(set(texts)) > 1 or own == 1
    if prefix > 1:
        common = len(tokens.tokenizer.encode(shared_text(texts), add_special_tokens=False))
        assert common >= prefix - 1, "they begin with the same text"


def shared_text(texts: list[str]) -> str:
    same = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*texts, strict=False))
    return "".join(column[0] for column in same)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**63 - 1), prefix=st.integers(0, 60), own=st.integers(1, 150), real=st.booleans())
def test_any_length_from_any_seed_is_exact(smollm2: Tokens, seed: int, prefix: int, own: int, real: bool) -> None:
    load = workload(built_in() if real else None, own, prefix, seed=seed, num_requests=2)
    for request in load.draw(smollm2, as_text=True):
        assert proven(smollm2.tokenizer, request, prefix + own)


def test_bm_04_no_bos_is_added_to_a_prompt(gemma: Tokens) -> None:
    """Neither to ids nor to text: a server that wants one adds it, and then its own count is one more than the prompt's."""
    tokenizer = gemma.tokenizer
    assert tokenizer.add_bos
    for as_text in (False, True):
        for request in workload(built_in(), 64, 32).draw(gemma, as_text=as_text):
            assert tokenizer.bos_token_id not in request.prompt_token_ids
            if request.prompt_text is not None:
                assert len(tokenizer.encode(request.prompt_text)) == 97  # what a server counts


def test_a_chat_has_the_prompts_tokens_and_a_fixed_number_of_its_templates(smollm2: Tokens) -> None:
    template = ChatTemplate.of(smollm2.tokenizer)
    drawn = [request for own in (20, 64, 200) for request in workload(built_in(), own).draw(smollm2, as_text=True)]
    whole = [template.apply(smollm2.tokenizer, [{"role": "user", "content": request.prompt_text}]) for request in drawn]
    assert len({len(ids) - len(request.prompt_token_ids) for ids, request in zip(whole, drawn, strict=True)}) == 1, "whatever the prompt"


def test_random_prompts_hold_no_special_token(smollm2: Tokens) -> None:
    special = smollm2.tokenizer.special_ids
    assert special
    assert not special.intersection(smollm2.ordinary.tolist())
    assert not special.intersection(*(r.prompt_token_ids for r in workload(None, 5000).draw(smollm2)))
    assert set(Tokens.of(smollm2.tokenizer, vocab_size=300).ordinary.tolist()) < set(range(300))


def test_text_of_a_special_token_is_left_out_of_prompts(smollm2: Tokens) -> None:
    text = PromptText(file="x", text="Before <|im_end|> and <|im_start|> after. " * 5)
    for as_text in (False, True):
        for request in workload(text, 30).draw(smollm2, as_text=as_text):
            assert len(request.prompt_token_ids) == 30
            assert not smollm2.tokenizer.special_ids.intersection(request.prompt_token_ids)


def test_no_two_prompts_of_a_text_begin_alike(smollm2: Tokens) -> None:
    """A prefix cache would find what they share: of 1,000 prompts from ten thousand tokens, places at random would coincide 50 times."""
    drawn = workload(built_in(), 40, num_requests=1000).draw(smollm2)
    assert len({tuple(request.prompt_token_ids) for request in drawn}) > 990  # the licences repeat some words themselves


def test_bm_13_a_salt_changes_all_prompts_and_nothing_else(smollm2: Tokens) -> None:
    for name, as_text in itertools.product(("text", "rag", "tenants", "conversations"), (False, True)):
        load = dataclasses.replace(load_workload(EXAMPLES / f"{name}.toml"), num_requests=12)
        plain, again = load.draw(smollm2, as_text=as_text), load.draw(smollm2, as_text=as_text)
        one, two = (load.draw(smollm2, as_text=as_text, salt=salt) for salt in ("run 1", "run 2"))
        assert plain == again, "the same seed, the same prompts"
        for runs in zip(plain, one, two, strict=True):
            assert len({tuple(r.prompt_token_ids[:16]) for r in runs}) == 3 or len(runs[0].prompt_token_ids) < 16
            bare = [dataclasses.replace(r, prompt_token_ids=[0] * len(r.prompt_token_ids), prompt_text=None) for r in runs]
            assert bare[0] == bare[1] == bare[2], "lengths, tenants and times"
        for before, after in itertools.combinations(range(12), 2):
            if plain[before].prompt_token_ids[:64] == plain[after].prompt_token_ids[:64]:
                assert one[before].prompt_token_ids[:32] == one[after].prompt_token_ids[:32], "what was shared is shared"


def test_the_first_prompts_do_not_depend_on_how_many_there_are(smollm2: Tokens) -> None:
    for as_text in (False, True):
        load = dataclasses.replace(load_workload(EXAMPLES / "rag.toml"), num_requests=8)
        more = dataclasses.replace(load, num_requests=15).draw(smollm2, as_text=as_text)
        assert more[:8] == load.draw(smollm2, as_text=as_text)


def test_text_without_a_tokenizer_is_refused() -> None:
    tokens = Tokens.of_size(1000)
    with pytest.raises(InvalidRequestError, match="tokenizer is not given: prompts of text are counted by the model's tokenizer"):
        workload(None, 4).draw(tokens, as_text=True)
    with pytest.raises(InvalidRequestError, match="tokenizer is not given"):
        workload(built_in(), 4).draw(tokens)
    load = workload(built_in(), 4)
    assert load.needs_tokenizer and not load.without_text().needs_tokenizer
    assert [len(r.prompt_token_ids) for r in load.without_text().draw(tokens)] == [4] * 12


def test_parts_of_one_key_are_one_text(smollm2: Tokens) -> None:
    writer = Writer(smollm2, seed=1, as_text=False, salt="")
    first, _ = writer.write([Part((3, 1), 20), Part((4, 0), 5)], None)
    second, _ = writer.write([Part((3, 1), 20), Part((4, 1), 5)], None)
    assert first[:20] == second[:20] and first[20:] != second[20:]


def test_a_file_of_text_and_a_field_of_jsonl(tmp_path: Path, smollm2: Tokens) -> None:
    (tmp_path / "a.txt").write_text("One two three four five.", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"body": "One two\u2028three."}\n\n{"body": "Four five."}\n', encoding="utf-8")
    assert read_prompt_file("a.txt", folder=tmp_path).text == "One two three four five."
    assert read_prompt_file("b.jsonl", "body", tmp_path).text == "One two\u2028three.\n\nFour five."
    kind = {"name": "k", "prompt_tokens": 30, "output_tokens": 1, "max_tokens": 1, "prompt": {"file": "b.jsonl", "field": "body"}}
    tables = {"name": "w", "arrivals": {"process": "at_once"}, "requests": [kind]}
    load = parse_workload(tables, "w.toml", tmp_path)
    assert parse_workload(load.as_toml(), "again", tmp_path) == load
    text = smollm2.tokenizer.decode(load.draw(smollm2)[0].prompt_token_ids)
    assert text.count("Four five") > 1, "a short text begins again"


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (None, None, "No such file"),
        (b"\xff\xfe\x00", None, "it is not UTF-8 text"),
        (b"  \n", None, "it has no text"),
        (b'{"a": "x"}\n[]\n', "a", "line 2: a = None: it must be a string"),
        (b'{"a": "x"}\n{"a": 3}\n', "a", "line 2: a = 3: it must be a string"),
        (b"{", "a", "line 1: it is not JSON"),
    ],
)
def test_a_file_that_is_no_text_is_named(content: bytes | None, name: str | None, said: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    with pytest.raises(InvalidRequestError) as error:
        read_prompt_file("x", name, tmp_path)
    assert str(tmp_path / "x") in str(error.value) and said in str(error.value)
