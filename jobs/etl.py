"""spark-submit entry of `rec etl`: the same arguments, the session of spark-submit."""

import sys

from rec.cli import main

sys.exit(main(["etl", *sys.argv[1:]]))
