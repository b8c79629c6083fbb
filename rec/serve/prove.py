"""The goldens of a bundle, asked of a running server by our own client."""

import numpy as np

from rec.bundle.bundle import Bundle
from rec.bundle.verify import compare_encoded, compare_logits
from rec.core.errors import ServingError
from rec.serve.client import Client, ServedScores, encoded_name


def prove(url: str, name: str, bundle: Bundle, version: int | None = None) -> None:
    """Reproduce the goldens by both models; with ``version``, by requests that name none and must reach it.

    Raises BundleError naming golden row and column, or ServingError where another version answers.
    """
    goldens = bundle.goldens()
    where = f"model {name} at {url}"
    with Client(url, name) as client:
        scores = client.score(goldens.raw, encoded=True)
    width = (goldens.num_rows, 0)
    dense_ND = scores.dense_BD if scores.dense_BD is not None else np.empty(width, np.float32)
    ids_NF = scores.ids_BF if scores.ids_BF is not None else np.empty(width, np.int64)
    compare_encoded(where, bundle.encoded_schema, (dense_ND, ids_NF), goldens)
    compare_logits(where, scores.logit_B, goldens)
    _check_version(where, scores, version)
    with Client(url, encoded_name(name)) as client:
        scores = client.score_encoded(goldens.dense_ND, goldens.ids_NF)
    compare_logits(f"model {encoded_name(name)} at {url}", scores.logit_B, goldens)
    _check_version(where, scores, version)


def _check_version(where: str, scores: ServedScores, version: int | None) -> None:
    if version is not None and scores.version != version:
        raise ServingError(
            f"{where}: version {scores.version} answers, expected {version}; does the server run on this repository?"
        )
