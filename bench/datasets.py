"""Rows per second at which click logs are written, and the memory it takes: `python bench/datasets.py`."""

import argparse
import resource
import tempfile
import time

from rec.datasets.criteo_like import CriteoLikeConfig, write_criteo_like


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="rows of each of two days")
    num_rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), time.process_time()
        dataset = write_criteo_like(folder, CriteoLikeConfig(num_days=2, rows_per_day=num_rows))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    num_bytes = sum(day.num_bytes for day in dataset.days)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print("| rows | bytes a row | rows/s | rows per CPU-second | peak MiB |")
    print("|---|---|---|---|---|")
    rates = f"{2 * num_rows / wall:,.0f} | {2 * num_rows / cpu:,.0f}"
    print(f"| {2 * num_rows:,} | {num_bytes / 2 / num_rows:.0f} | {rates} | {peak_mib:.0f} |")


if __name__ == "__main__":
    main()
