# What every shell of an example begins with: a failure ends it, and output is plain.
set -e -o pipefail
unset FORCE_COLOR CLICOLOR
export TERM=dumb
