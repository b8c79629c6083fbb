"""Raw columns to request arrays and back, for every type a dense column can have; runs shared by requests."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_bundle import INT64, fit_by_hand, make_rows, raw_schema
from tritonclient.utils import deserialize_bytes_tensor, serialize_byte_tensor

from rec.core.errors import RequestError
from rec.core.schema import Column, FeatureSchema
from rec.core.values import Values
from rec.serve.batching import score_together
from rec.serve.request import input_specs, output_specs, pack_bytes, to_arrays, to_columns, unpack_bytes
from rec.serve.triton_config import ServedState, config_text, read_state
from rec.train.export import bundle_schema

MIXED = FeatureSchema(
    columns=(
        Column(name="count", role="dense", dtype="int64"),
        Column(name="price", role="dense", dtype="float64"),
        Column(name="t", role="sparse", dtype="string", key="string"),
    )
)


def same(given, expected):
    assert sorted(given) == sorted(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(given[name].missing_B, values.missing_B)
        np.testing.assert_array_equal(given[name].data_B, values.data_B)


def test_integers_go_there_and_back_whole():
    rows = make_rows(raw_schema(), 50)
    assert {INT64.min, INT64.max} <= set(rows["I1"].data_B)
    arrays = to_arrays(rows, raw_schema())
    assert arrays["dense"].dtype == np.int64
    same(to_columns(arrays, raw_schema()), rows)


def mixed_rows(**changes):
    text = np.empty(3, object)
    text[:] = [b"a", b"", "ä".encode()]
    rows = {
        "count": Values(np.array([7, 0, -(2**53)]), np.array([False, True, False])),
        "price": Values(np.array([0.5, -1e300, 0.0]), np.array([False, False, True])),
        "t": Values(text, np.array([False, True, False])),
    }
    return rows | changes


def test_with_one_float_column_all_dense_numbers_travel_as_floats():
    arrays = to_arrays(mixed_rows(), MIXED)
    assert arrays["dense"].dtype == np.float64
    back = to_columns(arrays, MIXED)
    assert (back["count"].data_B.dtype, back["price"].data_B.dtype) == (np.int64, np.float64)
    same(back, mixed_rows())


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ((0, 1), np.nan, "'dense': price = nan in row 0; expected a finite number"),
        ((2, 0), np.inf, "'dense': count = inf in row 0; expected a finite number"),
        ((2, 0), 0.5, "'dense': count = 0.5 in row 2; expected an integer"),
        ((2, 0), 2.0**64, "'dense': count = 1.84.* in row 2; expected an integer of 64 bits"),
    ],
)
def test_a_float_without_meaning_is_refused_by_column(place, value, message):
    arrays = to_arrays(mixed_rows(), MIXED)
    arrays["dense"][place] = value
    with pytest.raises(RequestError, match=message.replace("row 0", "row .")):
        to_columns(arrays, MIXED)


def test_the_whole_of_int64_travels_beside_a_float_column_to_the_nearest_float():
    counts = np.array([INT64.max, INT64.min, 2**53 + 1])
    rows = mixed_rows(count=Values(counts, np.zeros(3, bool)))
    back = to_columns(to_arrays(rows, MIXED), MIXED)["count"].data_B
    assert back.tolist() == [INT64.max, INT64.min, 2**53]
    np.testing.assert_array_equal(back.astype(np.float64), counts.astype(np.float64))


def test_a_number_marked_as_missing_may_be_anything():
    arrays = to_arrays(mixed_rows(), MIXED)
    arrays["dense"][1, 0] = np.nan
    assert to_columns(arrays, MIXED)["count"].data_B[1] == 0


def check(arrays):
    if (arrays["x"] < 0).any():
        raise RequestError(f"input 'x': {arrays['x'].min()} is below 0")
    return arrays


class Scorer:
    """Doubles numbers and counts its runs."""

    num_runs = 0

    def __call__(self, arrays):
        self.num_runs += 1
        return {"y": 2 * check(arrays)["x"]}


@pytest.mark.parametrize(
    ("requests", "expected", "num_runs"),
    [
        ([], [], 0),
        ([[1, 2]], [[2, 4]], 1),
        ([[1, 2], [3], [4, 5, 6]], [[2, 4], [6], [8, 10, 12]], 1),
        ([[1, 2], [-3], [4, 5, 6]], [[2, 4], "-3 is below 0", [8, 10, 12]], 2),
        ([[-1], [-3]], ["-1 is below 0", "-3 is below 0"], 1),
    ],
)
def test_requests_share_a_run_and_errors_are_their_own(requests, expected, num_runs):
    scorer = Scorer()
    answers = score_together([{"x": np.array(r)} for r in requests], check, scorer)
    assert scorer.num_runs == num_runs
    assert len(answers) == len(expected)
    for answer, wanted in zip(answers, expected):
        if isinstance(wanted, str):
            assert wanted in str(answer)
        else:
            assert answer["y"].tolist() == wanted


BYTES = st.lists(st.binary(max_size=300) | st.sampled_from([b"", b"68fd1e64", b"\0" * 4, b"\x08\0\0\0"]), max_size=30)


@given(BYTES)
def test_bytes_travel_as_triton_reads_and_writes_them(values):
    array = np.empty(len(values), object)
    array[:] = values
    packed = pack_bytes(array.reshape(1, -1))
    if values:
        assert packed == serialize_byte_tensor(array).item()
        assert deserialize_bytes_tensor(packed).tolist() == values
    assert unpack_bytes(np.frombuffer(packed, np.uint8)).tolist() == values


@given(BYTES.filter(any), st.data())
def test_bytes_that_end_early_are_refused(values, data):
    array = np.empty(len(values), object)
    array[:] = values
    packed = np.frombuffer(pack_bytes(array), np.uint8)
    ends = np.cumsum([0, *(4 + len(v) for v in values)]).tolist()
    end = data.draw(st.sampled_from([n for n in range(len(packed)) if n not in ends]))
    with pytest.raises(ValueError, match=f"needs more than the {end} bytes given"):
        unpack_bytes(packed[:end])


@pytest.mark.parametrize("value", ["text", None, 7, np.arange(3)])
def test_only_bytes_are_packed(value):
    array = np.empty(2, object)
    array[:] = [b"good", None]
    array[1] = value
    with pytest.raises(TypeError):
        pack_bytes(array)


def test_a_config_tells_what_it_was_made_of():
    schema = bundle_schema(fit_by_hand(raw_schema()))
    strange = Column(name='say "ä"\\', role="dense", dtype="int64")
    state = ServedState(
        history=(1, 4),
        bundle_id="b" * 64,
        raw=FeatureSchema(columns=(strange, *schema.raw.sparse)),
        threads=2,
        max_batch_size=64,
    )
    text = config_text("ranker", "raw", schema, state)
    assert read_state(text) == state
    assert "version_policy { specific { versions: [ 4 ] } }" in text
    with pytest.raises(ValueError, match="no parameter"):
        read_state('name: "other"')


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs"),
    [
        ("raw", ["dense", "dense_missing", "sparse"], ["prob", "logit", "encoded_dense", "encoded_ids"]),
        ("encoded", ["dense", "ids"], ["prob", "logit"]),
    ],
)
def test_a_model_names_its_inputs_and_outputs(kind, inputs, outputs):
    schema = bundle_schema(fit_by_hand(raw_schema()))
    assert [s.name for s in input_specs(schema, kind)] == inputs
    assert [s.name for s in output_specs(schema, kind)] == outputs
