-- What each API key may do: an example, to be changed. configs/openresty/keys.conf calls it.
--
-- Calls are read by sszip itself, so that this file, sszip's rules (sszip_method) and its
-- cache see the same calls, whatever a client has written.


local sszip = require "resty.sszip"


local _M = {}


-- `minute`: calls in a minute, of a batch each one; without it any number.
-- `methods`: what may be called; a name, or a beginning with a `*`.
-- `fresh`: of these the node is asked, whatever is stored; its answer is stored for others. In
--     a batch they are as for anybody else.
-- `private`: nothing of these keys is looked up or stored.
local PLANS = {
    free = { minute = 300, methods = { "eth_*", "net_version" } },
    pro = { minute = 6000, methods = { "eth_*", "net_*", "web3_*", "trace_*" } },
    indexer = { methods = { "*" }, fresh = { eth_blockNumber = true } },
    tester = { minute = 600, methods = { "*" }, private = true },
}

-- of whom something is signed or sent on
local NOBODYS = { eth_sign = true, eth_signTransaction = true, eth_sendTransaction = true }

local UNREADABLE = { length = 413, coding = 415, memory = 503 }

local keys = {}


--- Reads the keys, a line each: `0123abcd free`. Called when nginx reads its configuration.
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
    -- or nginx would put a page of its own after it
    return ngx.exit(ngx.HTTP_OK)
end


-- An error under each id: what a client waits for. `calls` is nil where they can't be read.
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


-- Whether there is room for so many calls of a key in this minute.
local function take(key, plan, number)
    if not plan.minute then
        return true
    end

    local minute = math.floor(ngx.time() / 60)
    local name = key .. ":" .. minute
    local calls = ngx.shared.sszip_calls
    local used, err = calls:incr(name, number, 0, 120)

    if not used then
        -- a full dict is no reason to send anybody away
        ngx.log(ngx.ERR, "calls of a key are not counted: ", err)
        return true
    end

    if used > plan.minute then
        -- what was refused does not count
        calls:incr(name, -number)
        return false
    end

    return true
end


--- For access_by_lua.
function _M.access()
    local key = ngx.var.http_x_api_key
    local plan = PLANS[keys[key or ""] or ""]

    if not plan then
        return refuse(401, nil, -32600, "the API key is missing or not known")
    end

    ngx.req.read_body()

    local calls, err = sszip.calls()

    if not calls then
        -- nodes might read it in another way than this
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
