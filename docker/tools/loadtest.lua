-- Sends the bodies of a file, a line each, in turn, under new ids, and prints what wrk counted.
--   BODIES  the file     CODING  value of Accept-Encoding

local pieces, count = {}, 0
for line in io.lines(os.getenv("BODIES")) do
    local from, to = line:find('"id":0', 1, true)
    pieces[#pieces + 1] = { line:sub(1, to - 1), line:sub(to + 1) }
    assert(from)
end
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Accept-Encoding"] = os.getenv("CODING")

function request()
    count = count + 1
    -- by steps that are prime to any number of lines below 7919, so that neighbours differ
    local piece = pieces[count * 7919 % #pieces + 1]
    return wrk.format(nil, nil, nil, piece[1] .. count .. piece[2])
end

function done(summary, latency)
    local errors = summary.errors
    io.write(string.format(
        'LOADTEST {"requests": %d, "bytes": %d, "duration_us": %d, "errors": %d, "p50_us": %d, "p99_us": %d}\n',
        summary.requests, summary.bytes, summary.duration,
        errors.connect + errors.read + errors.write + errors.status + errors.timeout,
        latency:percentile(50), latency:percentile(99)))
end
