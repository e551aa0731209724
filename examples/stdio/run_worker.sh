#!/bin/bash
# Runs the worker beside it in the virtual environment `venv` beside it.
set -e
DIR="$( cd "$( dirname "${BASH_SOURCE[0]}" )" &> /dev/null && pwd )"
source "$DIR/venv/bin/activate"
exec python "$DIR/worker.py" "$@"
