"""A bundle opens only when everything in it holds; what is damaged is named."""

import json
import shutil

import numpy as np
import onnx
import pytest
from made_bundle import make_bundle, make_rows

from rec.bundle.bundle import Bundle
from rec.bundle.layout import read_manifest
from rec.bundle.onnx_weights import float_weights
from rec.bundle.verify import open_bundle
from rec.bundle.write import sign
from rec.core.errors import BundleError, IdRangeError, InputError, RequestError
from rec.core.manifest import canonical_json
from rec.core.values import Values
from rec.ops.pipeline import FittedPipeline


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("made") / "bundle")


@pytest.fixture
def copy(made, tmp_path):
    return shutil.copytree(made.path, tmp_path / "bundle")


def edit_table(folder, change):
    file = folder / "tables/0001.npy"
    np.save(file, change(np.load(file)))


def swap_rows(first, second):
    def change(table):
        table[[first, second]] = table[[second, first]]
        return table

    return change


def set_nan(table):
    table[123, 1] = np.nan
    return table


def edit_onnx(folder):
    model = onnx.load(folder / "model.onnx")
    weight = next(t for t in model.graph.initializer if len(t.dims) == 2)
    values = onnx.numpy_helper.to_array(weight).copy()
    values[0, 0] = np.inf
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    onnx.save(model, folder / "model.onnx")


def shift_onnx(folder):
    model = onnx.load(folder / "model.onnx")
    weight = next(t for t in model.graph.initializer if len(t.dims) == 2)
    values = onnx.numpy_helper.to_array(weight) * np.float32(1.01)
    weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    onnx.save(model, folder / "model.onnx")


def edit_pipeline(folder, change):
    """Change the stored states and give them the state id that follows, in pipeline and manifest."""
    file = folder / "pipeline/pipeline.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(canonical_json(content))
    with pytest.raises(BundleError, match="state_id") as raised:
        FittedPipeline.load(folder / "pipeline")
    content["state_id"] = str(raised.value).split("gives ")[1].split(";")[0]
    file.write_text(canonical_json(content))
    manifest = read_manifest(folder).model_copy(update={"state_id": content["state_id"]})
    sign(folder, manifest)


def change_scale(content):
    content["chains"][0]["states"][0]["scales"]["I1"][1] *= 1.5


def shift_ids(folder):
    file = next(folder.glob("pipeline/2.0.0*ids.npy"))
    np.save(file, np.roll(np.load(file), 1))


def change_golden_logit(folder):
    logits = np.load(folder / "goldens/logits.npy")
    logits[200] += 1e-3
    np.save(folder / "goldens/logits.npy", logits)


def test_a_whole_bundle_opens(made):
    assert open_bundle(made.path).bundle_id == made.bundle_id


@pytest.mark.parametrize(
    "name", ["tables/0002.npy", "model.onnx", "schema.json", "pipeline/pipeline.json", "goldens/ids.npy"]
)
def test_a_flipped_byte_is_refused_by_name(copy, name):
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(BundleError, match=f"{name} was changed: sha256 .* manifest.json says"):
        open_bundle(copy)


def test_a_file_that_is_gone_or_added_is_refused_by_name(copy):
    (copy / "stray.txt").write_text("x")
    with pytest.raises(BundleError, match=r"stray\.txt is not in manifest\.json"):
        open_bundle(copy)
    (copy / "stray.txt").unlink()
    (copy / "model.onnx").unlink()
    with pytest.raises(BundleError, match=r"model\.onnx is gone"):
        open_bundle(copy)


def test_a_folder_without_manifest_is_no_bundle(copy):
    (copy / "manifest.json").unlink()
    with pytest.raises(BundleError, match=r"no manifest\.json"):
        open_bundle(copy)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: edit_table(f, lambda t: t[:-1]), r"table C2 .*float32 \[302, 8\], expected float32 \[303, 8\]"),
        (lambda f: edit_table(f, lambda t: t.astype(np.float64)), r"table C2 .*float64"),
        (lambda f: edit_table(f, set_nan), "table C2 .*row 123 holds a NaN"),
        (lambda f: edit_table(f, swap_rows(3, 302)), "table C2 .*not those the trainer had"),
        (lambda f: edit_table(f, swap_rows(150, 151)), "table C2 .*not those the trainer had"),
        (edit_onnx, "weight .* holds a NaN or infinity"),
        (shift_onnx, r"golden row \d+: logit = .*expected"),
        (shift_ids, r"golden row \d+: C1 = \d+, expected \d+"),
        (change_golden_logit, "golden row 200: logit"),
    ],
    ids=["shape", "dtype", "nan", "swapped", "swapped-unread", "inf-graph", "graph", "vocabulary", "logit"],
)
def test_damage_is_refused_under_a_manifest_that_was_signed_again(copy, damage, message):
    damage(copy)
    sign(copy, read_manifest(copy))
    with pytest.raises(BundleError, match=message):
        open_bundle(copy)


def test_a_changed_scale_is_refused_with_manifest_and_state_id_made_to_fit(copy):
    edit_pipeline(copy, change_scale)
    with pytest.raises(BundleError, match=r"golden row \d+: I1 = .*expected"):
        open_bundle(copy)


def test_states_of_another_id_are_refused(copy):
    manifest = read_manifest(copy)
    sign(copy, manifest.model_copy(update={"state_id": "0" * 64}))
    with pytest.raises(BundleError, match=r"pipeline has state .* manifest\.json says 0000"):
        open_bundle(copy)


def test_weights_are_found_as_onnx_finds_them(made):
    model = onnx.load(made.path / "model.onnx")
    expected = {
        t.name: onnx.numpy_helper.to_array(t).ravel()
        for t in model.graph.initializer
        if t.data_type == onnx.TensorProto.FLOAT
    }
    found = {
        name: values for name, values in float_weights((made.path / "model.onnx").read_bytes()) if name in expected
    }
    assert sorted(found) == sorted(expected)
    assert len(expected) >= 8
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_scoring_raw_rows_is_encoding_then_scoring(made):
    rows = make_rows(made.raw_schema, 50, seed=5)
    dense_BD, ids_BF = made.encode(rows)
    for given, expected in zip(made.score(rows), made.score_encoded(dense_BD, ids_BF)):
        np.testing.assert_array_equal(given, expected)


def test_probabilities_are_the_sigmoid_of_logits_without_overflow(made):
    prob_B, logit_B = made.score(make_rows(made.raw_schema, 20))
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(prob_B, 1 / (1 + np.exp(-logit_B.astype(np.float64))), rtol=1e-6)
    assert np.isfinite(prob_B).all()


def test_no_rows_give_no_scores(made):
    rows = {n: Values(v.data_B[:0], v.missing_B[:0]) for n, v in make_rows(made.raw_schema, 1).items()}
    assert [len(a) for a in made.score(rows)] == [0, 0]


def test_more_threads_give_the_same_scores(made):
    rows = make_rows(made.raw_schema, 64, seed=3)
    np.testing.assert_allclose(Bundle(made.path, threads=2).score(rows).logit_B, made.score(rows).logit_B, rtol=1e-5)


def test_an_id_outside_its_table_is_refused_with_column_value_and_size(tmp_path, cases):
    case = json.loads((cases / "41_embedding_index_bounds/expected.json").read_text())
    bundle = make_bundle(tmp_path / "bundle", num_values=case["rows"] - 3)
    dense_BD, ids_BF = bundle.encode(make_rows(bundle.raw_schema, 4, num_values=case["rows"] - 3))
    for id_ in case["valid"]:
        ids_BF[2, 1] = id_
        assert np.isfinite(bundle.score_encoded(dense_BD, ids_BF).logit_B).all()
    for id_ in case["invalid"]:
        ids_BF[2, 1] = id_
        with pytest.raises(IdRangeError, match=rf"C2 = {id_} in row 2; expected an id within \[0, {case['rows']}\)"):
            bundle.score_encoded(dense_BD, ids_BF)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_dense_number_that_is_not_finite_is_refused(made, value):
    dense_BD, ids_BF = made.encode(make_rows(made.raw_schema, 4))
    dense_BD[3, 1] = value
    with pytest.raises(RequestError, match=f"I2 = {value} in row 3"):
        made.score_encoded(dense_BD, ids_BF)


def test_encoded_arrays_of_another_form_are_refused(made):
    dense_BD, ids_BF = made.encode(make_rows(made.raw_schema, 4))
    with pytest.raises(RequestError, match=r"'ids': expected int64 \[4, 4\], given int32 \[4, 4\]"):
        made.score_encoded(dense_BD, ids_BF.astype(np.int32))
    with pytest.raises(RequestError, match=r"'dense': expected float32 \[4, 3\], given float32 \[4, 2\]"):
        made.score_encoded(dense_BD[:, :2], ids_BF)


def test_a_column_left_out_or_a_value_without_key_is_refused(made):
    rows = make_rows(made.raw_schema, 4)
    with pytest.raises(RequestError, match="column 'C3' is not given"):
        made.score({n: v for n, v in rows.items() if n != "C3"})
    rows["C1"].data_B[2] = b"NOTAHASH"
    rows["C1"].missing_B[2] = False
    with pytest.raises(InputError, match="C1: b'NOTAHASH' is not eight"):
        made.score(rows)
