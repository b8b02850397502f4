-- Sends one recorded JSON-RPC request repeatedly, and prints wrk's counters as
-- one line of JSON. Its parameters are environment variables:
--   BENCH_REQUEST          file with the request's body; absent: a GET
--   BENCH_ACCEPT_ENCODING  value of Accept-Encoding
--   BENCH_ACCEPT           value of Accept; absent: none
--   BENCH_PAUSE_MS         mean pause before each request of a connection;
--                          absent: no pause
--   BENCH_KEYS             number of keys, used in turn, the same in each run
-- Nine bytes of value 1 in the body are replaced by nine digits that no earlier
-- request had, not even in an earlier run; with BENCH_KEYS, by the digits of the
-- key.

local MARK = string.rep("\1", 9)

local name = os.getenv("BENCH_REQUEST")
if name then
    local file = assert(io.open(name, "rb"))
    wrk.method = "POST"
    wrk.body = file:read("*a")
    file:close()
    wrk.headers["Content-Type"] = "application/json"
end
wrk.headers["Accept-Encoding"] = os.getenv("BENCH_ACCEPT_ENCODING")
wrk.headers["Accept"] = os.getenv("BENCH_ACCEPT")

-- wrk calls this function before it looks up the global "request".
function init()
    local text, pieces, start = wrk.format(), {}, 1
    while true do
        local from, to = text:find(MARK, start, true)
        pieces[#pieces + 1] = text:sub(start, from and from - 1)
        if not from then
            break
        end
        start = to + 1
    end
    if #pieces == 1 then
        return
    end
    -- A run takes at least a second, and sends less than a million requests per second.
    local count = 100000000 + os.time() % 800 * 1000000
    local keys = tonumber(os.getenv("BENCH_KEYS"))
    if keys then
        count = -1
    end
    function request()
        count = count + 1
        local number = keys and 100000000 + count % keys or count
        return table.concat(pieces, string.format("%d", number))
    end
end

local pause = tonumber(os.getenv("BENCH_PAUSE_MS"))
if pause then
    -- wrk calls a global of this name, if it exists, before each request.
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
