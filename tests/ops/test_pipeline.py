"""A pipeline's checks, its recipe form, and the folder it is stored in."""

import json
import math

import numpy as np
import pytest

from rec.core.config import parse_config
from rec.core.errors import BundleError, ConfigError, SchemaDriftError
from rec.core.schema import Column, FeatureSchema
from rec.core.values import Values
from rec.ops.categorify import Categorify
from rec.ops.clip import Clip
from rec.ops.config import FeaturesConfig, build_pipeline
from rec.ops.fill_missing import FillMissing
from rec.ops.log import LogOp
from rec.ops.normalize import Normalize
from rec.ops.op import NoState
from rec.ops.pipeline import CountedDay, FittedPipeline, Pipeline
from rec.ops.registry import OPS
from rec.ops.vocabulary import ColumnVocabulary, NumberKeys, TextKeys, VocabularyState

SCHEMA = FeatureSchema(
    columns=(
        Column(name="label", role="label", dtype="int32"),
        Column(name="I1", role="dense", dtype="int64"),
        Column(name="I2", role="dense", dtype="int64"),
        Column(name="C1", role="sparse", dtype="string", key="hex32"),
        Column(name="C2", role="sparse", dtype="string", key="string"),
    )
)
DENSE_OPS = [{"clip": {"min": 0}}, "log"]


@pytest.fixture
def fitted():
    keys = NumberKeys(np.array([1, 2**32 - 1]), np.array([4, 3]))
    texts = TextKeys.from_values([b"abcdefgh2", b"abcdefgh1", b"z", b"abcdefgh"], np.array([3, 4, 5, 6]))
    columns = {"C2": ColumnVocabulary("string", 4, "y", texts), "C1": ColumnVocabulary("hex32", 2, "x", keys)}
    pipeline = Pipeline(SCHEMA.dense >> FillMissing(0) >> Clip(min=0) >> LogOp(), SCHEMA.sparse >> Categorify())
    states = ((NoState(),) * 3, (VocabularyState(columns),))
    return FittedPipeline(
        root="lake",
        schema=SCHEMA,
        pipeline=pipeline,
        states=states,
        days=(0, 1),
        state_id=pipeline.state_id(states),
        counted={0: CountedDay(1, "a")},
    )


def raw_rows():
    def texts(values):
        data_B = np.empty(len(values), object)
        data_B[:] = values
        return Values(data_B, np.zeros(len(values), bool))

    return {
        "I1": Values(np.array([0, 1, -5]), np.array([True, False, False])),
        "I2": Values(np.array([7, 2**40, 0]), np.array([False, False, False])),
        "C1": texts([b"00000001", b"", b"ffffffff"]),
        "C2": texts([b"abcdefgh1", b"abcdefgh3", b"abcdefgh"]),
    }


def test_replay_gives_float32_and_int64_in_schema_order(fitted):
    out = fitted.replay(raw_rows())
    assert list(out) == ["I1", "I2", "C1", "C2"]
    assert [v.data_B.dtype.name for v in out.values()] == ["float32", "float32", "int64", "int64"]
    assert out["C1"].data_B.tolist() == [4, 1, 3]
    assert out["C2"].data_B.tolist() == [4, 2, 6]
    np.testing.assert_array_equal(out["I1"].data_B, np.log1p(np.array([0, 1, 0.0])).astype(np.float32))


def test_a_saved_pipeline_replays_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "state")
    loaded = FittedPipeline.load(tmp_path / "state")
    assert (loaded.state_id, loaded.days, loaded.counted) == (fitted.state_id, fitted.days, fitted.counted)
    assert loaded.encoded_schema == fitted.encoded_schema
    for name, values in fitted.replay(raw_rows()).items():
        np.testing.assert_array_equal(loaded.replay(raw_rows())[name].data_B, values.data_B)
    keys = loaded.states[1][0].columns["C1"].keys.keys_V
    assert isinstance(keys, np.memmap)
    assert not [p for p in (tmp_path / "state").iterdir() if p.suffix not in (".npy", ".json")]


def test_a_changed_folder_is_refused(fitted, tmp_path):
    fitted.save(tmp_path)
    content = json.loads((tmp_path / "pipeline.json").read_text())
    content["chains"][0]["ops"][1] = ["clip", {"min": 1, "max": None}]
    (tmp_path / "pipeline.json").write_text(json.dumps(content))
    with pytest.raises(BundleError, match="state_id"):
        FittedPipeline.load(tmp_path)
    with pytest.raises(BundleError, match=r"no pipeline\.json"):
        FittedPipeline.load(tmp_path / "nowhere")


def test_the_state_id_follows_operators_and_states(fitted):
    pipeline, states = fitted.pipeline, fitted.states
    other = Pipeline(SCHEMA.dense >> FillMissing(1) >> Clip(min=0) >> LogOp(), SCHEMA.sparse >> Categorify())
    slower = Pipeline(pipeline.chains[0], SCHEMA.sparse >> Categorify(broadcast_max_values=5))
    assert other.state_id(states) != pipeline.state_id(states)
    assert slower.state_id(states) == pipeline.state_id(states)
    columns = {**states[1][0].columns, "C1": ColumnVocabulary("hex32", 2, "changed")}
    assert pipeline.state_id((states[0], (VocabularyState(columns),))) != pipeline.state_id(states)


def test_num_embeddings_go_by_name_not_by_place(fitted):
    encoded = fitted.encoded_schema
    assert {c.name: c.num_embeddings for c in encoded.sparse} == {"C1": 5, "C2": 7}
    swapped = FeatureSchema(columns=(*SCHEMA.columns[:3], SCHEMA.columns[4], SCHEMA.columns[3]))
    assert [(c.name, c.num_embeddings) for c in fitted.pipeline.describe(swapped, fitted.states).sparse] == [
        ("C2", 7),
        ("C1", 5),
    ]


@pytest.mark.parametrize(
    ("chains", "message"),
    [
        (lambda: [], "no chains"),
        (lambda: [SCHEMA.dense >> LogOp()], "I1, I2: can still be missing after log; add fill_missing"),
        (
            lambda: [SCHEMA.sparse >> FillMissing(0)],
            "columns C1, C2: sparse, but fill_missing takes dense ones; leave it",
        ),
        (lambda: [SCHEMA.sparse >> FillMissing(0) >> Categorify()], "C1, C2: sparse, but fill_missing takes dense"),
        (lambda: [SCHEMA.sparse >> LogOp() >> Categorify()], "C1, C2: sparse, but log takes dense"),
        (lambda: [SCHEMA.sparse >> Categorify() >> LogOp()], "C1, C2: sparse, but log takes dense"),
        (lambda: [SCHEMA.sparse >> Categorify() >> Categorify()], "ids after categorify, but categorify takes sparse"),
        (
            lambda: [SCHEMA.dense >> Categorify()],
            "columns I1, I2: dense, but categorify takes sparse ones; declare them",
        ),
        (lambda: [SCHEMA.dense >> FillMissing(0) >> Categorify()], "I1, I2: dense, but categorify takes sparse ones"),
        (lambda: [SCHEMA.columns[2:] >> FillMissing(0)], "columns C1, C2: sparse, but fill_missing takes dense"),
        (lambda: [_retyped("C1", key=None) >> Categorify()], "'C1' is sparse without a key"),
        (lambda: [_retyped("I1", dtype="string") >> FillMissing(0)], "'I1' is dense and string"),
        (lambda: [SCHEMA.dense >> FillMissing(0) >> Clip(min=0.5)], "'I1' is int64 and clip.min = 0.5"),
        (lambda: [SCHEMA.dense >> LogOp() >> FillMissing(1e300)], r"'I1' is float32 and fill_missing.value = 1e\+300"),
        (lambda: [SCHEMA.columns[:1] >> FillMissing(0)], "'label' has role 'label'"),
        (lambda: [SCHEMA.dense >> Normalize() >> Normalize()], "normalize and normalize are both fitted"),
        (lambda: [SCHEMA.dense >> FillMissing(0), SCHEMA.dense[:1] >> FillMissing(0)], "'I1' is in 2 places"),
    ],
)
def test_a_pipeline_that_cannot_work_is_refused(chains, message):
    with pytest.raises(ConfigError, match=message):
        Pipeline(*chains())


def test_what_a_chain_makes_of_its_columns_decides_what_arguments_fit():
    assert Pipeline(SCHEMA.dense >> LogOp() >> Clip(min=0.5) >> FillMissing(0.5))


def _retyped(name, **changed):
    return (SCHEMA[name].model_copy(update=changed),)


def test_columns_no_chain_names_are_left_out():
    pipeline = Pipeline(SCHEMA.dense[:1] >> FillMissing(0))
    assert pipeline.describe(SCHEMA, ((NoState(),),)).names == ["label", "I1"]


def test_a_column_of_another_kind_is_refused():
    retyped = SCHEMA.replace(SCHEMA["C1"].model_copy(update={"key": "string"}))
    with pytest.raises(SchemaDriftError, match="'C1'"):
        Pipeline(SCHEMA.sparse >> Categorify()).select(retyped)


def test_a_recipe_names_operators_in_snake_case():
    content = {
        "dense": {"columns": "I*", "ops": ["fill_missing", *DENSE_OPS]},
        "sparse": {"columns": ["C1", "C2"], "ops": [{"categorify": {"freq_threshold": 2}}]},
    }
    pipeline = build_pipeline(parse_config(FeaturesConfig, content, "recipe"), SCHEMA)
    by_hand = Pipeline(
        SCHEMA.dense >> FillMissing() >> Clip(min=0) >> LogOp(), SCHEMA.sparse >> Categorify(freq_threshold=2)
    )
    assert pipeline.canonical() == by_hand.canonical()
    assert sorted(OPS) == ["categorify", "clip", "fill_median", "fill_missing", "log", "normalize"]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"columns": "I*", "ops": ["fill_mising"]}, "unknown operator 'fill_mising'; did you mean 'fill_missing'?"),
        ({"columns": "I*", "ops": [{"clip": {"mim": 0}}]}, "'clip' has no argument 'mim'; did you mean 'min'?"),
        ({"columns": "C*", "ops": [{"categorify": {"freq_threshold": 0}}]}, "freq_threshold = 0"),
        ({"columns": "C*", "ops": [{"categorify": {"freq_threshold": True}}]}, "freq_threshold = True"),
        ({"columns": "C*", "ops": [{"categorify": {"max_size": 2**63}}]}, "below 2.63"),
        ({"columns": "I*", "ops": [{"clip": {"min": "0", "max": 5}}]}, "clip: min = '0'; give a finite number or null"),
        ({"columns": "I*", "ops": [{"clip": {"min": math.nan}}]}, "clip.*min = nan.* finite number"),
        ({"columns": "I*", "ops": [{"fill_missing": {"value": None}}]}, "value = None; give a finite number$"),
        ({"columns": "I*", "ops": [{"fill_missing": {"value": 10**400}}]}, "value = 10+; give a finite number"),
        ({"columns": "I*", "ops": []}, "no operator"),
        ({"columns": "I*", "ops": [{"clip": {"min": 0}, "log": {}}]}, "2 operators in one entry"),
        ({"colums": "I*", "ops": ["log"]}, "columns"),
    ],
)
def test_a_mistake_in_the_features_section_is_named(section, message):
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        parse_config(FeaturesConfig, {"dense": section}, "recipe")


def test_a_pattern_that_fits_no_column_is_named():
    config = parse_config(FeaturesConfig, {"dense": {"columns": "J*", "ops": ["fill_missing"]}}, "recipe")
    with pytest.raises(ConfigError, match=r"features.dense.columns: 'J\*' fits none of"):
        build_pipeline(config, SCHEMA)
