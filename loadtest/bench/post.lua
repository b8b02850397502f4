-- Sends one recorded JSON-RPC request over and over and prints what wrk
-- counted as one line of JSON. Its parameters come in the environment:
--   BENCH_REQUEST          file with the request's body
--   BENCH_ACCEPT_ENCODING  value of Accept-Encoding
--   BENCH_PAUSE_MS         mean pause before each request of a connection;
--                          absent: none, the next follows at once

local file = assert(io.open(os.getenv("BENCH_REQUEST"), "rb"))
wrk.method = "POST"
wrk.body = file:read("*a")
file:close()
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Accept-Encoding"] = os.getenv("BENCH_ACCEPT_ENCODING")

local pause = tonumber(os.getenv("BENCH_PAUSE_MS"))
if pause then
    -- wrk asks for a delay whenever a global of this name exists.
    function delay()
        return math.random(0, 2 * pause)
    end
end

function done(summary, latency)
    local errors = summary.errors
    io.write(string.format(
        'BENCH {"requests": %d, "bytes": %d, "duration_us": %d, ' ..
        '"errors": %d, "p50_us": %d, "p90_us": %d, "p99_us": %d, ' ..
        '"max_us": %d}\n',
        summary.requests, summary.bytes, summary.duration,
        errors.connect + errors.read + errors.write + errors.status +
        errors.timeout, latency:percentile(50), latency:percentile(90),
        latency:percentile(99), latency.max))
end
