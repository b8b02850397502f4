-- Sends the requests of a file in turn, and prints wrk's counters as one line of JSON. Its
-- parameters are environment variables:
--   CALLS   path of the file: one request per line, METHOD, PATH, Accept-Encoding, Accept and
--           the body (empty for a GET), separated by tabs
--   FIRST   index of the first line; after the last line, the first one follows
--   KEYS    number of keys; absent: each request has a new key
--   SKEW    exponent of Zipf's distribution; absent: keys in turn
--   WINDOW  number of keys that are used in turn, and once more, before the next ones follow
--   START   number of earlier requests with windows
-- Nine bytes of value 1 in a body are replaced by an id: nine digits that no earlier request
-- had, not even in an earlier run. Nine bytes of value 2 are replaced by nine digits of the key.

local ID, KEY = string.rep("\1", 9), string.rep("\2", 9)
local LOWEST = 100000000

-- A run takes at least a second, and sends less than a million requests per second.
local count = LOWEST + os.time() % 800 * 1000000
local keys = tonumber(os.getenv("KEYS"))
local skew = tonumber(os.getenv("SKEW"))
local window = tonumber(os.getenv("WINDOW"))
local turn = (tonumber(os.getenv("START")) or 0) - 1

-- Draws a key by the inverse of the continuous distribution: the first keys are drawn a little
-- less often than by Zipf's sum over whole ranks.
local function drawn()
    local u = math.random()
    if skew == 1 then
        return math.floor(keys ^ u) - 1
    end
    local rest = 1 - skew
    return math.floor((u * (keys ^ rest - 1) + 1) ^ (1 / rest)) - 1
end

local function key()
    if window then
        turn = turn + 1
        return LOWEST + math.floor(turn / (2 * window)) * window + turn % window
    end
    if not keys then
        return count
    end
    if skew then
        return LOWEST + drawn()
    end
    turn = (turn + 1) % keys
    return LOWEST + turn
end

-- Splits a text at the two marks; returns the pieces, and whether each mark between them is an id.
local function split(text)
    local pieces, marks, start = {}, {}, 1
    while true do
        local id, one = text:find(ID, start, true)
        local other, two = text:find(KEY, start, true)
        local is_id = id ~= nil and (not other or id < other)
        local from, to = is_id and id or other, is_id and one or two
        pieces[#pieces + 1] = text:sub(start, from and from - 1)
        if not from then
            return pieces, marks
        end
        marks[#marks + 1] = is_id
        start = to + 1
    end
end

-- wrk calls this function before it looks up the global "request".
function init()
    math.randomseed(os.time() * 1000 + (tonumber(os.getenv("FIRST")) or 0))
    local calls = {}
    for line in assert(io.open(os.getenv("CALLS"), "rb")):lines() do
        local method, path, coding, media, body =
            line:match("^(%S+)\t(%S+)\t([^\t]*)\t([^\t]*)\t(.*)$")
        local headers = {}
        if coding ~= "" then
            headers["Accept-Encoding"] = coding
        end
        if media ~= "" then
            headers["Accept"] = media
        end
        if body ~= "" then
            headers["Content-Type"] = "application/json"
        end
        local text = wrk.format(method, path, headers, body ~= "" and body or nil)
        local pieces, marks = split(text)
        calls[#calls + 1] = { pieces, marks, #marks }
    end
    local at = (tonumber(os.getenv("FIRST")) or 0) % #calls
    function request()
        at = at % #calls + 1
        local pieces, marks, many = unpack(calls[at])
        if many == 0 then
            return pieces[1]
        end
        count = count + 1
        local parts = { pieces[1] }
        for n = 1, many do
            local number = marks[n] and count or key()
            parts[2 * n] = string.format("%d", number)
            parts[2 * n + 1] = pieces[n + 1]
        end
        return table.concat(parts)
    end
end

function done(summary, latency)
    local errors = summary.errors
    io.write(string.format(
        'BENCH {"requests": %d, "bytes": %d, "duration_us": %d, ' ..
        '"errors": %d, "statuses": %d, "p50_us": %d, "p99_us": %d, "p999_us": %d, ' ..
        '"max_us": %d}\n',
        summary.requests, summary.bytes, summary.duration,
        errors.connect + errors.read + errors.write + errors.timeout, errors.status,
        latency:percentile(50), latency:percentile(99), latency:percentile(99.9),
        latency.max))
end
