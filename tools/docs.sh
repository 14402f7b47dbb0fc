#!/bin/bash
# docs.sh ENVIRONMENT: build the documentation site with MkDocs, strictly: a warning is an error. What it
# needs is the extra `docs`, which is installed into the environment when it is not there.
set -euo pipefail
venv=$1

has() {
    "$venv/bin/python" -c 'import importlib.util as i, sys; sys.exit(not all(map(i.find_spec, sys.argv[1:])))' "$@"
}

if ! has mkdocs material mkdocstrings mkdocstrings_handlers; then
    echo 'docs: pip install -e .[docs]'
    "$venv/bin/python" -m pip install --quiet --config-settings editable_mode=compat --editable '.[docs]' ||
        { echo 'docs: pip could not install MkDocs (its words are above)' >&2; exit 1; }
fi
"$venv/bin/mkdocs" build --strict 2>&1 | { grep -v '^INFO' || true; }
echo 'docs: build/site/index.html'
