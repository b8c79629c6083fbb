"""spark-submit entry of `rec evaluate`: the same arguments, the session of spark-submit."""

import sys

from rec.cli import main

sys.exit(main(["evaluate", *sys.argv[1:]]))
