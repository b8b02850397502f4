-- Copyright (C) the sszip authors

--- The Unix socket connections to the owner of sszip's store. The module builds the requests
-- and interprets the replies: this file has only the sockets. It is not for scripts, which
-- use resty.sszip.


local base = require "resty.core.base"
base.allows_subsystem("http")

local ffi = require "ffi"
local C = ffi.C
local tcp = ngx.socket.tcp
local get_phase = ngx.get_phase
local find = string.find
local match = string.match


local _M = base.new_tab(0, 4)


-- where cosockets are (lua-nginx-module, "Cosockets Not Available Everywhere"), but for
-- those of TLS: there only OpenResty's own nginx can wait, others break the connection off
local YIELDS = {
    rewrite = true,
    server_rewrite = true,
    access = true,
    content = true,
    timer = true,
}

-- the owner closes connections that are idle for a minute
local IDLE = 20000
local CONNECTIONS = 16


local text = ffi.new("ngx_http_sszip_ffi_str_t[1]")
local status_ptr = ffi.new("unsigned int[1]")
local length_ptr = ffi.new("size_t[1]")
local path


--- The owner's socket, in the notation of cosockets; nil without a store.
function _M.path()
    -- while nginx reads a configuration the module has the previous one
    if path == nil and get_phase() ~= "init" then
        if C.ngx_http_sszip_ffi_owner(text) ~= base.FFI_OK then
            path = false

        else
            path = ffi.string(text[0].data, text[0].len)
        end
    end

    return path or nil
end


--- The message for a phase in which a function cannot be called.
function _M.disabled(phase)
    local name = phase .. "_by_lua*"

    if phase == "ssl_cert" then
        name = "ssl_certificate_by_lua*"

    elseif phase == "timer" then
        name = "ngx.timer"
    end

    return "API disabled in the context of " .. name
end


--- Returns whether this phase can wait for the owner; nil and the reason if not.
function _M.may_ask()
    local phase = get_phase()

    if YIELDS[phase] then
        return true
    end

    return nil, _M.disabled(phase)
end


local function once(sock, request, timeout)
    sock:settimeouts(1000, timeout, timeout)

    local ok, err = sock:connect(_M.path())
    if not ok then
        return nil, err
    end

    -- the owner may have closed a connection of the pool
    local reused = sock:getreusedtimes() > 0

    ok, err = sock:send(request)
    if not ok then
        return nil, err, reused
    end

    local head
    head, err = sock:receiveuntil("\r\n\r\n")()
    if not head then
        sock:close()
        return nil, err, reused
    end

    head = head .. "\r\n\r\n"
    text[0].data = head
    text[0].len = #head

    if C.ngx_http_sszip_ffi_owner_head(text, status_ptr, length_ptr)
       ~= base.FFI_OK
    then
        sock:close()
        return nil, "no answer of an owner's"
    end

    local status, length = status_ptr[0], tonumber(length_ptr[0])
    local body = ""

    if length > 0 then
        body, err = sock:receive(length)
        if not body then
            sock:close()
            return nil, err
        end
    end

    if find(head, "\r\nconnection: close\r\n", 1, true) then
        sock:close()

    else
        sock:setkeepalive(IDLE, CONNECTIONS)
    end

    return { status = status, head = head, body = body }
end


--- Sends a request that the module has built; yields.
-- @return a table with `status`, `head` and `body`; or nil and the reason
function _M.ask(request, timeout)
    local answer, err, again = once(tcp(), request, timeout)

    if not answer and again and err ~= "timeout" then
        answer, err = once(tcp(), request, timeout)
    end

    if not answer then
        return nil, "the cache's owner can't be queried: " .. (err or "unknown")
    end

    return answer
end


--- The error message for an unexpected reply.
function _M.problem(answer)
    local detail = match(answer.body, '"detail":"([^"]*)"')
    return "the cache's owner says " .. answer.status
           .. (detail and ": " .. detail or "")
end


return _M
