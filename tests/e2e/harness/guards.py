"""How long a test waits for an event before it fails."""

# It ends the test of a server that hangs. A busy machine stalls for tens of seconds.
GUARD_SECONDS = 120
