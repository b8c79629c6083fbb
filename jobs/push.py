"""spark-submit entry of `rec push`: the same arguments, the session of spark-submit."""

import sys

from rec.cli import main

sys.exit(main(["push", *sys.argv[1:]]))
