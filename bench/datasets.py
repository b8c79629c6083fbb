"""Rows per second at which click logs are written, and the memory it takes: `python bench/datasets.py`."""

import argparse
import resource
import statistics
import tempfile
import time

from machine import describe

from rec.datasets.criteo_like import CriteoLikeConfig, write_criteo_like

NUM_DAYS = 2


def write(config: CriteoLikeConfig) -> tuple[float, float, int]:
    """Write a data set; return seconds of wall and of CPU, and bytes."""
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), time.process_time()
        dataset = write_criteo_like(folder, config)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return wall, cpu, sum(day.num_bytes for day in dataset.days)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    config = CriteoLikeConfig(num_days=NUM_DAYS, rows_per_day=given.rows // NUM_DAYS)
    num_rows = sum(config.rows)
    wall, cpu, num_bytes = map(statistics.median, zip(*[write(config) for _ in range(given.repeats)]))
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{describe('numpy')}; medians of {given.repeats}\n")
    print("| rows | bytes a row | rows/s | rows per CPU-second | peak MiB |")
    print("|---|---|---|---|---|")
    rates = f"{num_rows / wall:,.0f} | {num_rows / cpu:,.0f}"
    print(f"| {num_rows:,} | {num_bytes / num_rows:.0f} | {rates} | {peak_mib:.0f} |")


if __name__ == "__main__":
    main()
