"""What the server answers is what the bundle answers in process, and what does not fit is refused by name."""

import socket
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tritonclient.http as triton
from made_bundle import INT64, make_rows

from rec.bundle.layout import BundleSchema
from rec.core.errors import RequestError, ServingError
from rec.core.values import Values
from rec.serve.client import Client, encoded_name
from rec.serve.control import Control
from rec.serve.parity import OfflineRows, compare, score_in_process
from rec.serve.request import input_specs, to_arrays

NUM_REQUESTS, MAX_BURSTS = 24, 20
ROWS_TOGETHER = 400


@pytest.fixture(scope="module")
def bundle(bundles):
    return bundles[0]


@pytest.fixture
def client(served):
    with Client(served.url, served.model_name) as client:
        yield client


@pytest.fixture
def encoded_client(served):
    with Client(served.url, encoded_name(served.model_name)) as client:
        yield client


def equal_bits(given, expected):
    np.testing.assert_array_equal(given.view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("batch_size", [1, 7, 64, 2048])
def test_served_scores_are_bit_equal_to_scores_in_process(client, bundle, batch_size):
    rows = make_rows(bundle.raw_schema, batch_size, seed=batch_size)
    served, expected = client.score(rows, encoded=True), bundle.score(rows)
    equal_bits(served.logit_B, expected.logit_B)
    equal_bits(served.prob_B, expected.prob_B)
    dense_BD, ids_BF = bundle.encode(rows)
    np.testing.assert_array_equal(served.ids_BF, ids_BF)
    equal_bits(served.dense_BD, dense_BD)


def test_encoded_rows_score_as_their_raw_rows(client, encoded_client, bundle):
    rows = make_rows(bundle.raw_schema, 64)
    equal_bits(encoded_client.score_encoded(*bundle.encode(rows)).logit_B, client.score(rows).logit_B)


def test_more_rows_than_a_request_holds_are_sent_in_several(client, bundle):
    rows = make_rows(bundle.raw_schema, 5000)
    equal_bits(client.score(rows).logit_B, score_in_process(bundle, rows, 2048).logit_B)
    equal_bits(client.score(rows, batch_size=300).logit_B, score_in_process(bundle, rows, 300).logit_B)


def test_no_rows_give_no_scores(client, bundle):
    rows = make_rows(bundle.raw_schema, 1)
    assert len(client.score({n: Values(v.data_B[:0], v.missing_B[:0]) for n, v in rows.items()})) == 0


def test_encoded_rows_come_when_asked_for(client, bundle):
    arrays = to_arrays(make_rows(bundle.raw_schema, 3), bundle.raw_schema)
    assert sorted(client.infer(arrays)) == ["logit", "prob", "version"]
    reply = client.infer(arrays, ["encoded_ids"])
    assert sorted(reply) == ["encoded_ids", "version"]
    assert reply["encoded_ids"].dtype == np.int64


def test_without_marks_nothing_is_missing(client, bundle):
    arrays = to_arrays(make_rows(bundle.raw_schema, 8), bundle.raw_schema)
    arrays["dense"][5], arrays["dense_missing"][5] = 7, True
    marked = client.infer(arrays, ["encoded_dense"])["encoded_dense"]
    del arrays["dense_missing"]
    unmarked = client.infer(arrays, ["encoded_dense"])["encoded_dense"]
    assert marked[5].tolist() == [0, 0, 0]
    np.testing.assert_allclose(unmarked[5], [(7 - 5) / 200, np.log1p(7), np.log1p(7)], rtol=1e-6)


def test_the_whole_of_int64_arrives(client, bundle):
    rows = make_rows(bundle.raw_schema, 4)
    rows["I2"].data_B[:2] = [INT64.max, INT64.max - 1]
    np.testing.assert_array_equal(client.score(rows, encoded=True).dense_BD, bundle.encode(rows)[0])


def as_frame(rows, make):
    pairs = {n: zip(v.data_B.tolist(), v.missing_B) for n, v in rows.items()}
    columns = {n: [None if gone else value for value, gone in column] for n, column in pairs.items()}
    text = {n: [v if v is None else v.decode() for v in c] for n, c in columns.items() if n.startswith("C")}
    numbers = {"C3": [v if v is None else int(v) for v in text["C3"]]}
    return make(columns | text | numbers | {"row_key": list(range(100, 100 + len(rows["I1"].data_B)))})


@pytest.mark.parametrize("make", [pa.table, lambda c: pd.DataFrame(c, dtype=object)], ids=["arrow", "pandas"])
def test_frames_score_as_their_columns_and_keep_row_keys(served, bundle, make):
    rows = make_rows(bundle.raw_schema, 40, seed=9)
    scores = served.score(as_frame(rows, make))
    equal_bits(scores.logit_B, bundle.score(rows).logit_B)
    assert scores.row_key_B.tolist() == list(range(100, 140))


def test_a_spark_frame_scores_as_its_columns(served, bundle, spark):
    rows = make_rows(bundle.raw_schema, 40, seed=9)
    table = as_frame(rows, pa.table)
    frame = spark.createDataFrame([tuple(r.values()) for r in table.to_pylist()], _spark_schema(table))
    equal_bits(served.score(frame).logit_B, bundle.score(rows).logit_B)


def _spark_schema(table):
    return ", ".join(f"{f.name} {'BIGINT' if f.type == pa.int64() else 'STRING'}" for f in table.schema)


def test_a_frame_without_a_column_or_with_a_broken_number_is_refused(served):
    frame = as_frame(make_rows(served.client().state.raw, 5), lambda c: pd.DataFrame(c, dtype=object))
    with pytest.raises(RequestError, match=r"column 'C2' is not in the rows; expected .* given"):
        served.score(frame.drop(columns="C2"))
    frame["I2"] = 2.0**60
    with pytest.raises(RequestError, match=r"column 'I2': 1\.15.*not an integer that a float holds exactly"):
        served.score(frame)


def replaced(name, change):
    return lambda arrays: arrays | {name: change(arrays[name])}


WRONG_RAW = {
    "dtype": (
        replaced("dense", lambda a: a.astype(np.int32)),
        r"'dense': expected INT64 .*given int32 \[4, 3\]",
    ),
    "float": (replaced("dense", lambda a: a.astype(np.float64)), r"'dense': expected INT64 .*given FP64"),
    "width": (replaced("sparse", lambda a: a[:, :3]), r"'sparse': expected BYTES \[.*4\].*given BYTES \[4, 3\]"),
    "rows": (replaced("sparse", lambda a: a[:3]), r"'sparse': expected .* given BYTES \[3, 4\]"),
    "no batch": (replaced("dense", lambda a: a[0]), r"'dense': expected .* given INT64 \[3\]"),
    "text": (
        replaced("sparse", lambda a: np.full_like(a, "text")),
        "'sparse': row 0, column 0 is 'text'; expected",
    ),
    "number": (
        replaced("sparse", lambda a: np.where(np.arange(16).reshape(4, 4) == 9, 7, a)),
        "ranker: input 'sparse': row 2, column 1 is 7; expected bytes, empty for missing",
    ),
    "missing": (lambda a: {n: v for n, v in a.items() if n != "sparse"}, r"'sparse': expected \[.*given \['dense'"),
    "unknown": (lambda a: a | {"spares": a["sparse"]}, r"'spares': expected \['dense', 'dense_missing', 'sparse'\]"),
    "too many": (lambda a: {n: np.repeat(v, 600, 0) for n, v in a.items()}, r"1 … 2048, 3\].*given INT64 \[2400, 3\]"),
    "none": (lambda a: {n: v[:0] for n, v in a.items()}, r"given INT64 \[0, 3\]"),
}


@pytest.mark.parametrize("fault", WRONG_RAW)
def test_the_client_refuses_what_does_not_fit(client, bundle, fault):
    change, message = WRONG_RAW[fault]
    with pytest.raises(RequestError, match=message):
        client.infer(change(to_arrays(make_rows(bundle.raw_schema, 4), bundle.raw_schema)))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_client_refuses_numbers_that_are_not_finite(encoded_client, bundle, value):
    dense_BD, ids_BF = bundle.encode(make_rows(bundle.raw_schema, 4))
    dense_BD[2, 1] = value
    with pytest.raises(RequestError, match=f"'dense': I2 = {value} in row 2; expected a finite number"):
        encoded_client.score_encoded(dense_BD, ids_BF)


def test_an_output_that_no_model_has_is_refused(client, bundle):
    with pytest.raises(RequestError, match="output 'probs': expected some of"):
        client.infer(to_arrays(make_rows(bundle.raw_schema, 1), bundle.raw_schema), ["probs"])


def test_the_server_refuses_values_by_column(client, encoded_client, bundle):
    arrays = to_arrays(make_rows(bundle.raw_schema, 4), bundle.raw_schema)
    arrays["sparse"][3, 0] = b"XYZ"
    with pytest.raises(RequestError, match="input 'sparse': C1: b'XYZ' is not eight lower-case hex digits"):
        client.infer(arrays)
    dense_BD, ids_BF = bundle.encode(make_rows(bundle.raw_schema, 4))
    ids_BF[1, 3] = 303
    with pytest.raises(RequestError, match=r"input 'ids': C4 = 303 in row 1; expected an id within \[0, 303\)"):
        encoded_client.score_encoded(dense_BD, ids_BF)


def test_a_row_beyond_float32_is_a_server_error_with_its_reason(encoded_client, bundle):
    rng = np.random.default_rng(0)
    dense_BD = rng.choice([-1, 1], (500, 3)).astype(np.float32) * np.finfo(np.float32).max
    ids_BF = rng.integers(0, 303, (500, 4))
    beyond = np.flatnonzero(~np.isfinite(bundle.score_encoded(dense_BD, ids_BF).logit_B))
    with pytest.raises(ServingError, match=rf"logit of row {beyond[0]} is .*; the row leaves float32's range"):
        encoded_client.score_encoded(dense_BD, ids_BF)


def test_requests_that_wait_together_share_a_run_and_a_bad_one_fails_alone(served, bundle):
    # Whether requests wait for each other is the machine's affair: some burst of several does.
    assert any(_runs_of_a_burst(served, bundle) < NUM_REQUESTS for _ in range(MAX_BURSTS))


def _runs_of_a_burst(served, bundle) -> int:
    """Send requests of which one is bad, check every answer, and return how many runs they took."""
    columns = [make_rows(bundle.raw_schema, ROWS_TOGETHER, seed=s) for s in range(NUM_REQUESTS)]
    requests = [to_arrays(c, bundle.raw_schema) for c in columns]
    requests[17]["sparse"][5, 0] = b"XYZ"
    before = _executions(served)
    answers = _infer_together(served, bundle, requests)
    sent, runs = np.subtract(_executions(served), before)
    assert "C1: b'XYZ' is not eight" in str(answers.pop(17))
    columns.pop(17)
    for answer, rows in zip(answers, columns):
        # The first rows hold the ends of int64, whose logits cancel: they depend on the batch.
        given_B, expected_B = answer.as_numpy("logit")[4:, 0], bundle.score(rows).logit_B[4:]
        np.testing.assert_allclose(given_B, expected_B, rtol=1e-5, atol=1e-5)
    assert sent == NUM_REQUESTS * ROWS_TOGETHER
    return runs


def _executions(served):
    statistics = Control(served.url, 10).statistics(served.model_name)
    return statistics["inference_count"], statistics["execution_count"]


def _infer_together(served, bundle, requests):
    """Send all requests before waiting for the first; return each answer or what was raised."""
    schema = BundleSchema(raw=bundle.raw_schema, encoded=bundle.encoded_schema)
    types = {s.name: s.datatype for s in input_specs(schema, "raw")}
    client = triton.InferenceServerClient(served.url, concurrency=20)
    pending = []
    for arrays in requests:
        inputs = [triton.InferInput(n, list(a.shape), types[n]) for n, a in arrays.items()]
        for tensor, array in zip(inputs, arrays.values()):
            tensor.set_data_from_numpy(array)
        pending.append(client.async_infer(served.model_name, inputs))
    answers = []
    for request in pending:
        try:
            answers.append(request.get_result())
        except triton.InferenceServerException as error:
            answers.append(error)
    client.close()
    return answers


def test_a_server_that_is_not_up_is_named_with_its_remedy():
    with pytest.raises(ServingError, match=r"server 127\.0\.0\.1:9: no answer .*start one with `rec serve`"):
        Client("127.0.0.1:9", "ranker")


@pytest.mark.parametrize(
    "reply",
    [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\ncut", b"SSH-2.0-OpenSSH\r\n"],
    ids=["closed", "cut", "another protocol"],
)
def test_an_answer_that_breaks_off_is_an_error_of_the_server(served, bundle, reply):
    def answer(listener):
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            accepted.recv(1 << 16)
            accepted.sendall(reply)
            accepted.close()

    with socket.create_server(("127.0.0.1", 0)) as listener, Client(served.url, served.model_name) as client:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        client.url = f"127.0.0.1:{listener.getsockname()[1]}"
        client._client = triton.InferenceServerClient(client.url)
        with pytest.raises(ServingError, match=rf"server {client.url}: no answer .*start one with `rec serve`"):
            client.score(make_rows(bundle.raw_schema, 3))
        listener.shutdown(socket.SHUT_RDWR)


def test_a_server_of_another_kind_is_no_server(served):
    page = b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: close\r\n\r\n<html></html>"

    def answer(listener):
        accepted, _ = listener.accept()
        accepted.recv(1 << 16)
        accepted.sendall(page)
        accepted.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        with pytest.raises(ServingError, match=r"server 127\.0\.0\.1:\d+: no answer .*correct serve\.url"):
            Client(f"127.0.0.1:{listener.getsockname()[1]}", "ranker")


def test_a_model_that_is_not_there_is_named(served):
    with pytest.raises(ServingError, match="nosuch"):
        Client(served.url, "nosuch")


@pytest.fixture(scope="module")
def offline(served, bundle):
    rows = make_rows(bundle.raw_schema, 500, seed=4)
    dense_BD, ids_BF = bundle.encode(rows)
    scores = score_in_process(bundle, rows, 128)
    return rows, OfflineRows(dense_BD=dense_BD, ids_BF=ids_BF, scores=scores, trainer_logit_B=scores.logit_B.copy())


def test_parity_holds_between_equal_rows(served, offline):
    rows, expected = offline
    report = compare(served.score(rows, encoded=True, batch_size=128), expected)
    assert report.holds
    assert (report.num_rows, report.max_score_delta, report.max_trainer_delta) == (500, 0, 0)


def test_parity_counts_each_difference(served, offline):
    rows, expected = offline
    dense_BD, ids_BF = expected.dense_BD.copy(), expected.ids_BF.copy()
    ids_BF[7, 1] += 1
    dense_BD[20, 1] = np.nextafter(dense_BD[20, 1], np.float32(100))
    dense_BD[30, 2] += 0.01
    logit_B = expected.trainer_logit_B.copy()
    logit_B[100] += 0.5
    changed = OfflineRows(dense_BD=dense_BD, ids_BF=ids_BF, scores=expected.scores, trainer_logit_B=logit_B)
    report = compare(served.score(rows, encoded=True, batch_size=128), changed)
    counts = (report.ids_different, report.dense_last_place, report.dense_different, report.scores_different)
    assert counts == (1, 1, 1, 0)
    assert report.trainer_different == 1
    assert report.max_trainer_delta == pytest.approx(0.5, rel=1e-4)
    assert not report.holds
    with pytest.raises(ServingError, match="encoded_dense is nothing, expected"):
        compare(served.score(rows), expected)
