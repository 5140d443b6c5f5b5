#!/bin/sh
# Asks one probe address of a server; live.sh, ready.sh and check.sh name the address.
#
#   probe.sh PATH [URL [TIMEOUT_S]]
#
# URL is the server's address, http://$SESSIONS_BIND by default; TIMEOUT_S limits the whole
# exchange, 5 s by default. Needs curl or python3. Proxies of the environment are ignored.
#
# Exit codes, with one line on stdout (0) or stderr:
#   0  the server answered 200
#   1  it answered another status, or nothing in time
#   2  a wrong call, or neither curl nor python3 is here
set -u

fail() {
    printf '%s\n' "$2" >&2
    exit "$1"
}

[ $# -ge 1 ] && [ $# -le 3 ] || fail 2 "usage: ${0##*/} PATH [URL [TIMEOUT_S]]"
base=${2:-http://${SESSIONS_BIND:-127.0.0.1:8000}}
url=${base%/}$1
timeout_s=${3:-5}
case $timeout_s in
'' | *[!0-9.]*) fail 2 "TIMEOUT_S must be a number of seconds, not '$timeout_s'" ;;
esac

ask_python='
import sys, urllib.error, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    reply = opener.open(sys.argv[1], timeout=float(sys.argv[2]))
except urllib.error.HTTPError as error:
    reply = error
except (OSError, ValueError) as error:
    sys.exit(str(getattr(error, "reason", error)))
print(reply.read().decode(errors="replace"), reply.status, sep="\n")
'

line_end='
'
# Both print the body, then the status on a line of its own; or they fail and print why.
if command -v curl >/dev/null 2>&1; then
    answer=$(curl --silent --show-error --noproxy '*' --max-time "$timeout_s" \
        --write-out '\n%{http_code}' --url "$url" 2>&1) || {
        answer=${answer#*curl: } # what came before, and the status line behind it, say nothing
        fail 1 "$url does not answer: ${answer%%"$line_end"*}"
    }
elif command -v python3 >/dev/null 2>&1; then
    answer=$(python3 -c "$ask_python" "$url" "$timeout_s" 2>&1) ||
        fail 1 "$url does not answer: $answer"
else
    fail 2 "neither curl nor python3 is here"
fi

status=${answer##*"$line_end"}
body=${answer%"$line_end"*}
[ "$status" = 200 ] || fail 1 "$url says $status: $body"
printf '%s\n' "$body"
