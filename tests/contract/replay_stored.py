"""Run in the serving environment: replay a stored request and compare with what Spark gave. argv: a folder."""

import sys
from pathlib import Path

import numpy as np

from rec.core.values import Values
from rec.ops.pipeline import FittedPipeline


def main(folder: Path) -> int:
    assert np.__version__.startswith("1."), np.__version__
    wrong = 0
    for case in sorted(folder.iterdir()):
        fitted = FittedPipeline.load(case / "fitted")
        stored = np.load(case / "rows.npz")
        raw = {}
        for column in (*fitted.schema.dense, *fitted.schema.sparse):
            data_B = stored[f"raw {column.name}"]
            if column.role == "sparse":
                blob, ends = data_B.tobytes(), stored[f"ends {column.name}"]
                data_B = np.empty(len(ends), object)
                data_B[:] = [blob[a:b] for a, b in zip([0, *ends[:-1]], ends)]
            raw[column.name] = Values(data_B, stored[f"missing {column.name}"])
        for name, values in fitted.replay(raw).items():
            if not np.array_equal(values.data_B, stored[f"encoded {name}"]):
                sys.stdout.write(f"{case.name} {name} {values.data_B} {stored[f'encoded {name}']}\n")
                wrong += 1
    unwanted = {"pyspark", "pyarrow", "torch"} & set(sys.modules)
    sys.stdout.write(f"numpy {np.__version__} wrong {wrong} unwanted {sorted(unwanted)}\n")
    return int(bool(wrong or unwanted))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
