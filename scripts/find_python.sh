#!/bin/sh
# Print a Python of at least 3.11 that can make virtual environments, or say what to install.
# Usage: find_python.sh [INTERPRETER]; with an argument only that one is tried.
#
# Every candidate is run: the shims of version managers are on the path for versions that are not there.

wanted=$1
no_venv=""
too_old=""

for candidate in ${wanted:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
    version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null) || continue
    if ! "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null; then
        too_old=${too_old:-"$candidate is Python $version"}
    elif ! "$candidate" -c 'import venv, ensurepip' 2>/dev/null </dev/null; then
        no_venv=${no_venv:-$version}
    else
        command -v "$candidate"
        exit 0
    fi
done

{
    if [ -n "$no_venv" ]; then
        echo "regard: Python $no_venv is here, but not its venv module, which makes the environment. Type:"
        if command -v apt-get >/dev/null; then
            echo "    sudo apt-get install python$no_venv-venv"
        else
            echo "    your system's command to install the venv and ensurepip modules of Python $no_venv"
        fi
    else
        if [ -n "$too_old" ]; then
            echo "regard: Python 3.11 or newer is needed; $too_old."
        else
            echo "regard: Python 3.11 or newer is needed; ${wanted:-no python3} cannot be run."
        fi
        if command -v apt-get >/dev/null; then
            echo "    Type: sudo apt-get install python3 python3-venv"
        elif command -v brew >/dev/null; then
            echo "    Type: brew install python@3.13"
        else
            echo "    Get it from https://www.python.org/downloads/"
        fi
        echo "    or name one that you have: make PYTHON=/path/to/python3.12 …"
    fi
    echo "and run make again."
} >&2
exit 1
