import pytest

from rec.core.config import parse_config
from rec.core.errors import ConfigError
from rec.data.config import LoaderConfig


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        ({"global_batch_size": 100}, "set global_batch_size to 96 or 112, or num_streams to 10"),
        ({"global_batch_size": 7}, "set global_batch_size to 16, or num_streams to 7"),
        ({"global_batch_size": 256, "num_streams": 12}, "set global_batch_size to 252 or 264, or num_streams to 8"),
    ],
)
def test_batch_that_streams_cannot_share_evenly_is_refused_with_what_fits(content, remedy):
    with pytest.raises(ConfigError) as caught:
        parse_config(LoaderConfig, content, "train")
    assert remedy in str(caught.value)
    assert f"global_batch_size = {content['global_batch_size']}" in str(caught.value)


@pytest.mark.parametrize("field", ["global_batch_size", "num_streams", "num_window_row_groups", "num_workers"])
def test_zero_is_refused_by_field(field):
    with pytest.raises(ConfigError, match=field):
        parse_config(LoaderConfig, {field: 0}, "train")
