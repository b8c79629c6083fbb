"""spark-submit entry of `rec train`: the same arguments, the session of spark-submit."""

import sys

from rec.cli import main

sys.exit(main(["train", *sys.argv[1:]]))
