"""One real server for each module that asks for it: starting one takes longer than most tests."""

import pytest
from made_bundle import make_bundle

from rec.serve.config import ServeConfig
from rec.serve.push import push


@pytest.fixture(scope="session")
def bundles(tmp_path_factory):
    """Two bundles of the same inputs and other weights."""
    folder = tmp_path_factory.mktemp("bundles")
    return [make_bundle(folder / str(seed), seed) for seed in range(2)]


@pytest.fixture(scope="module")
def served(bundles, tmp_path_factory):
    """The first bundle, served."""
    served = push(bundles[0], tmp_path_factory.mktemp("models"), config=ServeConfig(max_batch_size=2048))
    yield served
    served.stop()
