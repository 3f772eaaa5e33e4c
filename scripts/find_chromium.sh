#!/bin/sh
# Print a Chromium that runs, for the browser tests: $CHROMIUM, or one on the path. As root on Debian
# install it; anywhere else say what to type.

runs() {
    # Ubuntu's chromium-browser may be a stub that only asks for a snap, so it is run, not just found.
    [ -n "$1" ] && "$1" --version >/dev/null 2>&1 </dev/null
}

find_on_path() {
    for candidate in chromium chromium-browser google-chrome google-chrome-stable \
        "/Applications/Chromium.app/Contents/MacOS/Chromium" \
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"; do
        if runs "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

if [ -n "$CHROMIUM" ]; then
    if runs "$CHROMIUM"; then
        command -v "$CHROMIUM"
        exit 0
    fi
    echo "regard: CHROMIUM is set to $CHROMIUM, which does not run. Mend it or unset it." >&2
    exit 1
fi

find_on_path && exit 0

if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "regard: no Chromium found; the browser tests need it. Installing the chromium package with apt-get." >&2
    export DEBIAN_FRONTEND=noninteractive
    # apt-get writes to stdout, which is where the path is expected.
    apt-get update -qq >&2 </dev/null &&
        apt-get install -y -qq --no-install-recommends chromium >&2 </dev/null &&
        find_on_path && exit 0
    echo "regard: apt-get could not install a Chromium that runs (see above)." >&2
fi

{
    echo "regard: the browser tests need Chromium, and none was found. Type:"
    if command -v apt-get >/dev/null; then
        echo "    sudo apt-get update && sudo apt-get install --no-install-recommends chromium"
    elif command -v dnf >/dev/null; then
        echo "    sudo dnf install chromium"
    elif command -v brew >/dev/null; then
        echo "    brew install --cask chromium"
    else
        echo "    your system's command to install Chromium or Google Chrome"
    fi
    echo "or name one that you have: make test CHROMIUM=/path/to/chromium"
} >&2
exit 1
