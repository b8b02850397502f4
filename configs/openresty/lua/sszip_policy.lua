-- Plans of API keys: an example to change. configs/openresty/keys.conf calls it.
--
-- sszip itself parses the calls, so that this file, sszip's rules (sszip_method) and its cache
-- process the same calls, in whatever notation a client has sent them.


local sszip = require "resty.sszip"


local _M = {}


-- `minute`: calls in a minute, each call of a batch counted; without it the number is unlimited.
-- `methods`: the allowed methods; a name, or a prefix with a `*`.
-- `fresh`: calls to these methods always reach the node; its response is stored for other keys.
--     In a batch these calls are treated like those of all other keys.
-- `private`: requests of these keys are neither looked up nor stored.
local PLANS = {
    free = { minute = 300, methods = { "eth_*", "net_version" } },
    pro = { minute = 6000, methods = { "eth_*", "net_*", "web3_*", "trace_*" } },
    indexer = { methods = { "*" }, fresh = { eth_blockNumber = true } },
    tester = { minute = 600, methods = { "*" }, private = true },
}

-- methods that sign, or send, with an account of the node
local NOBODYS = { eth_sign = true, eth_signTransaction = true, eth_sendTransaction = true }

local UNREADABLE = { length = 413, coding = 415, memory = 503 }

local keys = {}


--- Loads the keys, a line each: `0123abcd free`. nginx calls it when it reads its configuration.
function _M.load(path)
    local file = assert(io.open(path))
    keys = {}

    for line in file:lines() do
        if not line:find("^%s*$") and not line:find("^%s*#") then
            local key, plan = line:match("^%s*(%w+)%s+(%a+)%s*$")
            assert(PLANS[plan], path .. ": not a key and a plan: " .. line)
            keys[key] = plan
        end
    end

    file:close()
end


local function may_call(plan, method)
    if NOBODYS[method] then
        return false
    end

    for _, known in ipairs(plan.methods) do
        if known == method
           or known:sub(-1) == "*" and method:sub(1, #known - 1) == known:sub(1, -2)
        then
            return true
        end
    end

    return false
end


local function send(status, body)
    ngx.status = status
    ngx.header.content_type = "application/json"
    ngx.header.content_length = #body
    ngx.print(body)
    -- another status would make nginx append a page of its own
    return ngx.exit(ngx.HTTP_OK)
end


-- Sends an error under each id, as a client expects. `calls` is nil if the body is unreadable.
local function refuse(status, calls, code, message)
    local answers = {}

    for _, call in ipairs(calls or { { id = "null" } }) do
        if call.id then
            answers[#answers + 1] = '{"jsonrpc":"2.0","id":' .. call.id
                                    .. ',"error":{"code":' .. code
                                    .. ',"message":"' .. message .. '"}}'
        end
    end

    local body = table.concat(answers, ",")

    if calls and calls.batch and body ~= "" then
        body = "[" .. body .. "]"
    end

    return send(status, body)
end


-- Returns whether the plan permits this number of further calls of a key in this minute.
local function take(key, plan, number)
    if not plan.minute then
        return true
    end

    local minute = math.floor(ngx.time() / 60)
    local name = key .. ":" .. minute
    local calls = ngx.shared.sszip_calls
    local used, err = calls:incr(name, number, 0, 120)

    if not used then
        -- a full dict does not reject requests
        ngx.log(ngx.ERR, "calls of a key are not counted: ", err)
        return true
    end

    if used > plan.minute then
        -- rejected calls do not count
        calls:incr(name, -number)
        return false
    end

    return true
end


--- The handler for access_by_lua.
function _M.access()
    local key = ngx.var.http_x_api_key
    local plan = PLANS[keys[key or ""] or ""]

    if not plan then
        return refuse(401, nil, -32600, "the API key is missing or not known")
    end

    ngx.req.read_body()

    local calls, err = sszip.calls()

    if not calls then
        -- a node might parse the body differently
        return refuse(UNREADABLE[err] or 400, nil, -32600, "no JSON-RPC: " .. err)
    end

    for _, call in ipairs(calls) do
        if not may_call(plan, call.method) then
            return refuse(200, calls, -32601, "a method is not of this key's plan")
        end
    end

    if not take(key, plan, #calls) then
        ngx.header.retry_after = 60 - ngx.time() % 60
        return refuse(429, calls, -32005, "too many calls in this minute")
    end

    if plan.private then
        assert(sszip.bypass())

    elseif plan.fresh and not calls.batch and plan.fresh[calls[1].method] then
        assert(sszip.bypass("look_up"))
    end
end


return _M
