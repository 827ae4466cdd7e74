"""Before a run: is the server there, which model does it have, and what of a request does it take?"""

from __future__ import annotations

import dataclasses
import http.client
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from octavo.bench.load.connection import reason
from octavo.bench.load.events import error_message
from octavo.bench.load.records import RequestRecord
from octavo.bench.load.run import LoadOptions, offer
from octavo.bench.load.target import Target
from octavo.bench.workload.requests import DrawnRequest
from octavo.errors import InvalidRequestError, OctavoError

MODELS = "/v1/models"
TIMEOUT_S = 60.0
PROBE_TOKENS = 4
"""Of the prompt and of the answer: too few to leave a block in a prefix cache."""
BAD_REQUEST = (400, 422)

_DROPS: dict[str, tuple[Callable[[Target], Target], str]] = {
    "continuous_usage_stats": (
        lambda target: dataclasses.replace(target, stream_options=("include_usage",)),
        "tokens of each event are counted from its text",
    ),
    "stream_options": (lambda target: dataclasses.replace(target, stream_options=()), "tokens are counted from the text alone"),
    "cache_salt": (lambda target: dataclasses.replace(target, salts=False), "tenants and runs may share cached prefixes"),
    "ignore_eos": (lambda target: dataclasses.replace(target, ignore_eos=False), "answers may be shorter than asked for"),
}
"""Field that a server may refuse → the target without it, and what that means."""


class Ready(NamedTuple):
    """A server that answers."""

    target: Target
    """With the model's name, and only the fields that the server takes."""
    notes: tuple[str, ...]
    """What it does not take, and what follows."""


def get_ready(url: str, model: str | None, sample: DrawnRequest, **settings: Any) -> Ready:
    """Ask the server for its models, and for a short answer.

    ``model`` None: the first that it lists. ``sample``: the probe asks in the form, ids or text, of this request. ``settings``: those of
    the Target.

    Raises:
        InvalidRequestError: nothing answers at ``url``, it wants another key, or it has no such model.
        OctavoError: it does not answer the probe as an OpenAI server does.
    """
    target = Target(url, model or "", **settings)
    names = list_models(target)
    if not target.model:
        if not names:
            raise InvalidRequestError(f"model = None: {url} lists no models; name the one to ask for", field="model")
        target = dataclasses.replace(target, model=names[0])
    if names and target.model not in names:
        raise InvalidRequestError(f"model = {target.model}: {url} has {', '.join(names)}", field="served_model")
    return _settle(target, sample)


def list_models(target: Target) -> list[str]:
    """The names that /v1/models tells; none where there is no such page.

    Raises:
        InvalidRequestError: nothing answers there, or it wants another key.
    """
    address = target.address
    connect = http.client.HTTPSConnection if address.tls else http.client.HTTPConnection
    connection = connect(address.host, address.port, timeout=TIMEOUT_S)
    headers = target.authorization
    try:
        connection.request("GET", address.path + MODELS, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise InvalidRequestError(f"url = {target.url}: no server answers there: {reason(error)}", field="url") from None
    finally:
        connection.close()
    if answer.status in (401, 403):
        raise InvalidRequestError(f"api_key: {target.url} says HTTP {answer.status}: {error_message(body)}", field="api_key")
    if answer.status != 200:
        return []
    try:
        return [str(entry["id"]) for entry in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError):
        return []


def _settle(target: Target, sample: DrawnRequest) -> Ready:
    """Drop what the server refuses until it answers: first what its error names, otherwise in the order of _DROPS."""
    left = dict(_DROPS)
    if target.cache_salt is None and sample.tenant is None:
        del left["cache_salt"]
    notes = []
    first = record = _probe(target, sample)
    while not record.completed and record.status in BAD_REQUEST and left:
        name = next((name for name in left if name in record.message), next(iter(left)))
        drop, means = left.pop(name)
        target = drop(target)
        if name == "stream_options":
            left.pop("continuous_usage_stats", None)
        notes.append(f"the server takes no {name}: {means}")
        record = _probe(target, sample)
    if not record.completed:
        raise _complaint(target, first)
    return Ready(target, tuple(notes))


def _probe(target: Target, sample: DrawnRequest) -> RequestRecord:
    request = dataclasses.replace(
        sample,
        index=0,
        arrival=0.0,
        prompt_token_ids=sample.prompt_token_ids[:PROBE_TOKENS],
        prompt_text=None if sample.prompt_text is None else "Once upon a time",
        max_tokens=PROBE_TOKENS,
        output_tokens=PROBE_TOKENS,
    )
    run = offer(target, [request], concurrency=1, options=LoadOptions(request_timeout=TIMEOUT_S))
    if run.interrupted is not None:
        raise OctavoError(f"{target.url}: {run.interrupted}")
    return run.records[0]


def _complaint(target: Target, record: RequestRecord) -> OctavoError:
    said = f"{target.url}{target.endpoint}: {record.message}"
    if record.status == 404:
        return InvalidRequestError(f"model = {target.model}: {said}", field="served_model")
    return OctavoError(f"the server did not answer a first short request: {said}")
