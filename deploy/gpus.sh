#!/bin/sh
# What Spark asks of a worker: its GPUs as {"name": "gpu", "addresses": ["0", "1"]}.
set -eu
indexes=$(nvidia-smi --query-gpu=index --format=csv,noheader)
printf '{"name": "gpu", "addresses": ["%s"]}\n' "$(echo $indexes | sed 's/ /", "/g')"
