"""What promise 3 is about: a request's token ids and log-probabilities, bit for bit."""

from __future__ import annotations

import numpy as np

from octavo.outputs import RequestOutput


def bits(output: RequestOutput) -> tuple[list[int], bytes]:
    """Ids; and of each position the tokens that were scored, their log-probabilities and ranks. Of a request with one completion."""
    (completion,) = output.outputs
    assert completion.logprobs is not None and len(completion.logprobs) == len(completion.token_ids)
    values = [(token, entry.logprob, entry.rank) for position in completion.logprobs for token, entry in position.items()]
    return completion.token_ids, np.asarray(values, np.float64).tobytes()
