-- Copyright (C) the sszip authors

--- sszip for Lua in nginx: lua-nginx-module with lua-resty-core, OpenResty.
--
-- docs/lua.md is the manual: for each function the phases in which it may be called, its
-- arguments, and its result. An argument of a wrong type throws an error with the argument's
-- name; all other failures return nil and a message.


local base = require "resty.core.base"
base.allows_subsystem("http")

local ffi = require "ffi"
local C = ffi.C
local ffi_new = ffi.new
local ffi_string = ffi.string
local get_request = base.get_request
local get_phase = ngx.get_phase
local escape_uri = ngx.escape_uri
local new_tab = base.new_tab
local FFI_OK = base.FFI_OK
local FFI_DECLINED = base.FFI_DECLINED
local error = error
local floor = math.floor
local pairs = pairs
local pcall = pcall
local tonumber = tonumber
local tostring = tostring
local type = type
local match = string.match


-- unless it was required before, and failed below
if not pcall(ffi.typeof, "ngx_http_sszip_ffi_str_t") then
    ffi.cdef[[
typedef struct {
    const unsigned char   *data;
    size_t                 len;
} ngx_http_sszip_ffi_str_t;

typedef struct {
    ngx_http_sszip_ffi_str_t  method;
    ngx_http_sszip_ffi_str_t  id;
    ngx_http_sszip_ffi_str_t  params;
} ngx_http_sszip_ffi_call_t;

typedef struct {
    ngx_http_sszip_ffi_str_t  name;
    uint64_t                  number;
} ngx_http_sszip_ffi_figure_t;

typedef struct {
    ngx_http_sszip_ffi_str_t  name;
    ngx_http_sszip_ffi_str_t  fork;
    ngx_http_sszip_ffi_str_t  preset;
    ngx_http_sszip_ffi_str_t  form;
    ngx_http_sszip_ffi_str_t  path;
} ngx_http_sszip_ffi_what_t;

int ngx_http_sszip_ffi_abi(void);
void ngx_http_sszip_ffi_free(void);

int ngx_http_sszip_ffi_variable(ngx_http_request_t *r,
    const unsigned char *name, size_t len, ngx_http_sszip_ffi_str_t *out);
int ngx_http_sszip_ffi_bypass(ngx_http_request_t *r, unsigned int what,
    ngx_http_sszip_ffi_str_t *out);
int ngx_http_sszip_ffi_calls(ngx_http_request_t *r, size_t most_bytes,
    size_t most_calls, const ngx_http_sszip_ffi_call_t **calls, size_t *n,
    int *batch, ngx_http_sszip_ffi_str_t *out);

int ngx_http_sszip_ffi_get(const unsigned char *name, size_t len,
    ngx_http_sszip_ffi_str_t *out);
int ngx_http_sszip_ffi_set(const ngx_http_sszip_ffi_str_t *name,
    const ngx_http_sszip_ffi_str_t *value, uint64_t ttl,
    ngx_http_sszip_ffi_str_t *out);
int ngx_http_sszip_ffi_delete(const ngx_http_sszip_ffi_str_t *name,
    ngx_http_sszip_ffi_str_t *out);
int ngx_http_sszip_ffi_look_up(const ngx_http_sszip_ffi_str_t *name,
    ngx_http_sszip_ffi_str_t *out, uint64_t *generation);
int ngx_http_sszip_ffi_decode_reply(const ngx_http_sszip_ffi_str_t *name,
    const ngx_http_sszip_ffi_str_t *head, const ngx_http_sszip_ffi_str_t *body,
    uint64_t generation, ngx_http_sszip_ffi_str_t *out);
int ngx_http_sszip_ffi_answer(const ngx_http_sszip_ffi_str_t *key,
    const ngx_http_sszip_ffi_str_t *id, ngx_http_sszip_ffi_str_t *out);

int ngx_http_sszip_ffi_owner(ngx_http_sszip_ffi_str_t *out);
int ngx_http_sszip_ffi_owner_head(const ngx_http_sszip_ffi_str_t *head,
    unsigned int *status, size_t *length);
int ngx_http_sszip_ffi_purge(const ngx_http_sszip_ffi_str_t *query,
    ngx_http_sszip_ffi_str_t *out);

int ngx_http_sszip_ffi_gzip(const ngx_http_sszip_ffi_str_t *data,
    unsigned int level, ngx_http_sszip_ffi_str_t *out);
int ngx_http_sszip_ffi_gunzip(const ngx_http_sszip_ffi_str_t *data,
    size_t most, ngx_http_sszip_ffi_str_t *out);
int ngx_http_sszip_ffi_zstd(const ngx_http_sszip_ffi_str_t *data,
    unsigned int level, ngx_http_sszip_ffi_str_t *out);
int ngx_http_sszip_ffi_unzstd(const ngx_http_sszip_ffi_str_t *data,
    size_t most, ngx_http_sszip_ffi_str_t *out);
int ngx_http_sszip_ffi_json_to_ssz(const ngx_http_sszip_ffi_what_t *what,
    const ngx_http_sszip_ffi_str_t *json, ngx_http_sszip_ffi_str_t *out);
int ngx_http_sszip_ffi_ssz_to_json(const ngx_http_sszip_ffi_what_t *what,
    const ngx_http_sszip_ffi_str_t *ssz, ngx_http_sszip_ffi_str_t *out);
int ngx_http_sszip_ffi_check(const ngx_http_sszip_ffi_what_t *what,
    const ngx_http_sszip_ffi_str_t *ssz, ngx_http_sszip_ffi_str_t *out);
int ngx_http_sszip_ffi_root(const ngx_http_sszip_ffi_what_t *what,
    const ngx_http_sszip_ffi_str_t *ssz, ngx_http_sszip_ffi_str_t *out);

int ngx_http_sszip_ffi_stats(const ngx_http_sszip_ffi_figure_t **figures,
    size_t *n, ngx_http_sszip_ffi_str_t *out);
    ]]
end


-- the version of this file's interface; a module of another version has another one
local ABI = 2

do
    local loaded, abi = pcall(function () return C.ngx_http_sszip_ffi_abi() end)

    if not loaded then
        error("resty.sszip: ngx_http_sszip_module is not loaded, or is older than this "
              .. "file: nginx.conf needs \"load_module "
              .. "modules/ngx_http_sszip_module.so;\"")
    end

    if abi ~= ABI then
        error("resty.sszip: this file and ngx_http_sszip_module are of different "
              .. "versions: install both from one")
    end
end

local owner = require "resty.sszip.owner"


local _M = new_tab(0, 20)

_M._VERSION = "0.1.0"


-- no function yields between writing to one of these and reading from it
local out = ffi_new("ngx_http_sszip_ffi_str_t[1]")
local str1 = ffi_new("ngx_http_sszip_ffi_str_t[1]")
local str2 = ffi_new("ngx_http_sszip_ffi_str_t[1]")
local str3 = ffi_new("ngx_http_sszip_ffi_str_t[1]")
local what = ffi_new("ngx_http_sszip_ffi_what_t[1]")
local generation = ffi_new("uint64_t[1]")
local size_ptr = ffi_new("size_t[1]")
local int_ptr = ffi_new("int[1]")
local calls_ptr = ffi_new("const ngx_http_sszip_ffi_call_t *[1]")
local figures_ptr = ffi_new("const ngx_http_sszip_ffi_figure_t *[1]")

-- data of this length is not kept in memory until the next call
local LONG = 65536


local function bad_type(name, expected, value)
    error("bad \"" .. name .. "\" argument: " .. expected .. " expected, got "
          .. type(value), 3)
end


local function result()
    local len = tonumber(out[0].len)
    local text = ffi_string(out[0].data, len)

    if len >= LONG then
        C.ngx_http_sszip_ffi_free()
    end

    return text
end


-- the result of a function that returns a value whenever it succeeds
local function done(rc)
    if rc == FFI_OK then
        return result()
    end

    return nil, result()
end


local function point(str, text)
    str[0].data = text
    str[0].len = #text
end


-- the valid names of a table of options, each with its type
local function options(opts, known, name)
    if opts == nil then
        return
    end

    if type(opts) ~= "table" then
        error("bad \"" .. name .. "\" argument: table expected, got " .. type(opts), 3)
    end

    for key, value in pairs(opts) do
        local expected = known[key]

        if not expected then
            error("bad \"" .. name .. "\" argument: there is no \"" .. tostring(key)
                  .. "\"", 3)
        end

        if type(value) ~= expected then
            error("bad \"" .. name .. "." .. key .. "\" argument: " .. expected
                  .. " expected, got " .. type(value), 3)
        end
    end
end


-- an integer in C's range; any other value exceeds every limit
local function whole(number, most)
    if number >= 0 and number <= most and number == floor(number) then
        return number
    end

    return nil
end


-- functions of the request

local function variable(name)
    local r = get_request()
    if not r then
        return nil, "no request found"
    end

    local rc = C.ngx_http_sszip_ffi_variable(r, name, #name, out)

    if rc == FFI_DECLINED then
        return nil
    end

    return done(rc)
end


--- The cache status of this request, in nginx's terms: "HIT", "MISS", ...
-- @return a string; nil before the lookup, or without one
function _M.status()
    return variable("sszip_cache_status")
end


--- The reason why the response is no hit, or is not stored: a word of docs/reasons.md.
-- @return a string; nil without a reason
function _M.reason()
    return variable("sszip_cache_reason")
end


--- The cache key of the response: 64 hexadecimal digits.
-- @return a string; nil before the lookup, and for a batch, which has many keys
function _M.key()
    return variable("sszip_cache_key")
end


local BYPASSES = { look_up = 1, store = 2 }

--- Disables the lookup of this request ("look_up"), the storage of its response ("store"), or
-- both (no argument). The last call takes effect.
-- @return true; or nil and an error
function _M.bypass(which)
    local bits = 3

    if which ~= nil then
        if type(which) ~= "string" then
            bad_type("which", "string", which)
        end

        bits = BYPASSES[which]

        if not bits then
            return nil, "there are \"look_up\" and \"store\", and without a word both"
        end
    end

    local r = get_request()
    if not r then
        return nil, "no request found"
    end

    local phase = get_phase()
    if phase ~= "rewrite" and phase ~= "access" and phase ~= "server_rewrite" then
        return nil, owner.disabled(phase)
    end

    if C.ngx_http_sszip_ffi_bypass(r, bits, out) ~= FFI_OK then
        return nil, result()
    end

    return true
end


local CALLS = { max_calls = "number", max_body = "number" }

local function string_or_nil(str)
    if str.data == nil then
        return nil
    end

    return ffi_string(str.data, str.len)
end


--- The calls of the request, whose body was read: an array of tables with `method`, `id`
-- and `params`, the last two as raw JSON, or nil if absent. Its field `batch` is true for a
-- batch.
-- @param opts max_calls (1000), max_body (8 MiB, decompressed)
-- @return that table; or nil and the reason, a word of docs/lua.md
function _M.calls(opts)
    options(opts, CALLS, "opts")

    local most_calls = opts and opts.max_calls or 1000
    local most_bytes = opts and opts.max_body or 8 * 1024 * 1024

    most_calls = whole(most_calls, 1e6)
    most_bytes = whole(most_bytes, 2 ^ 32)
    if not most_calls or not most_bytes then
        return nil, "max_calls and max_body are whole numbers, of at most 1e6 and 2^32"
    end

    local r = get_request()
    if not r then
        return nil, "no request found"
    end

    if C.ngx_http_sszip_ffi_calls(r, most_bytes, most_calls, calls_ptr, size_ptr,
                                  int_ptr, out)
       ~= FFI_OK
    then
        return nil, result()
    end

    local n, read = tonumber(size_ptr[0]), calls_ptr[0]
    local calls = new_tab(n, 1)

    for i = 1, n do
        local call = read[i - 1]

        calls[i] = {
            method = ffi_string(call.method.data, call.method.len),
            id = string_or_nil(call.id),
            params = string_or_nil(call.params),
        }
    end

    calls.batch = int_ptr[0] ~= 0
    C.ngx_http_sszip_ffi_free()

    return calls
end


-- values of scripts

-- timeouts in milliseconds; a lookup waits as long as a connect does
local LOOK_UP_TIMEOUT = 1000
local SET_TIMEOUT = 5000
local PURGE_TIMEOUT = 15000


-- the reason for a missing value: a worker without its memory has no values
local function lack()
    local err = result()
    local phase = get_phase()

    if phase == "init" or phase == "init_worker" then
        return nil, owner.disabled(phase)
    end

    return nil, err
end


--- The value that set() has stored under a key. A value in this worker's memory is returned at
-- once; with a store, other values are fetched from its owner in phases that permit it.
-- @return a string; nil if there is no value; or nil and an error
function _M.get(key)
    if type(key) ~= "string" then
        bad_type("key", "string", key)
    end

    local rc = C.ngx_http_sszip_ffi_get(key, #key, out)

    if rc == FFI_OK then
        return result()
    end

    if rc ~= FFI_DECLINED then
        return lack()
    end

    if not owner.path() or not owner.may_ask() then
        return nil
    end

    point(str1, key)
    rc = C.ngx_http_sszip_ffi_look_up(str1, out, generation)

    if rc == FFI_DECLINED then
        return nil
    end

    local request, err = done(rc)
    if not request then
        return nil, err
    end

    local since = generation[0]
    local answer
    answer, err = owner.ask(request, LOOK_UP_TIMEOUT)

    if not answer then
        return nil, err
    end

    point(str1, key)
    point(str2, answer.head)
    point(str3, answer.body)
    rc = C.ngx_http_sszip_ffi_decode_reply(str1, str2, str3, since, out)

    if rc == FFI_DECLINED then
        return nil
    end

    return done(rc)
end


--- Stores a value under a key, for `ttl` seconds: in this worker's memory, and at the owner of
-- the store, if there is one and this phase can send requests to it.
-- @return true; or nil and an error
function _M.set(key, value, ttl)
    if type(key) ~= "string" then
        bad_type("key", "string", key)
    end

    if type(value) ~= "string" then
        bad_type("value", "string", value)
    end

    if type(ttl) ~= "number" then
        bad_type("ttl", "number", ttl)
    end

    local ms = floor(ttl * 1000)
    if not (ms >= 1) then
        return nil, "the ttl must be a millisecond at least"
    end

    point(str1, key)
    point(str2, value)
    local rc = C.ngx_http_sszip_ffi_set(str1, str2, ms < 1e15 and ms or 1e15, out)

    if rc == FFI_DECLINED then
        return true
    end

    if rc ~= FFI_OK then
        return lack()
    end

    if not owner.may_ask() then
        C.ngx_http_sszip_ffi_free()
        return true
    end

    local answer, err = owner.ask(result(), SET_TIMEOUT)

    if not answer then
        return nil, err
    end

    if answer.status ~= 201 then
        return nil, owner.problem(answer)
    end

    return true
end


--- Removes the value under a key; with a store in all workers, which requires a phase that
-- can wait.
-- @return true, also if there was no value; or nil and an error
function _M.delete(key)
    if type(key) ~= "string" then
        bad_type("key", "string", key)
    end

    if owner.path() then
        local ok, err = owner.may_ask()
        if not ok then
            return nil, err
        end
    end

    point(str1, key)
    local rc = C.ngx_http_sszip_ffi_delete(str1, out)

    if rc == FFI_DECLINED then
        return true
    end

    if rc ~= FFI_OK then
        return lack()
    end

    local answer, err = owner.ask(result(), PURGE_TIMEOUT)

    if not answer then
        return nil, err
    end

    if answer.status ~= 200 then
        return nil, owner.problem(answer)
    end

    return true
end


--- A response that is stored in this worker's memory, as it would be sent: by the result of
-- key(), and, for a call, under an id (raw JSON, default null).
-- @return a string; nil if there is no entry; or nil and an error
function _M.answer(key, id)
    if type(key) ~= "string" then
        bad_type("key", "string", key)
    end

    if id == nil then
        id = "null"

    elseif type(id) ~= "string" then
        bad_type("id", "string", id)
    end

    point(str1, key)
    point(str2, id)
    local rc = C.ngx_http_sszip_ffi_answer(str1, str2, out)

    if rc == FFI_OK then
        return result()
    end

    if rc == FFI_DECLINED then
        return nil
    end

    return lack()
end


local PURGES = {
    all = "boolean",
    namespace = "string",
    method = "string",
    blocks = "string",
    key = "string",
}

--- Purges entries in all processes, as sszip_cache_purge does, and yields until the purge is
-- in effect.
-- @param scope one of all (true), namespace, method, blocks ("FROM-TO"), key; namespace
-- goes with method, and with blocks
-- @return the number of these entries in the owner's memory; or nil and an error
function _M.purge(scope)
    if type(scope) ~= "table" then
        bad_type("scope", "table", scope)
    end

    options(scope, PURGES, "scope")

    local query = scope.all and "everything&" or ""

    for name, value in pairs(scope) do
        if name ~= "all" then
            query = query .. name .. "=" .. escape_uri(value) .. "&"
        end
    end

    local ok, err = owner.may_ask()
    if not ok then
        return nil, err
    end

    point(str1, query)
    local rc = C.ngx_http_sszip_ffi_purge(str1, out)

    if rc == FFI_DECLINED then
        return nil, "nothing was purged: there is no store, and each worker has a memory "
                    .. "of its own; set sszip_cache_path"
    end

    local request
    request, err = done(rc)
    if not request then
        return nil, err
    end

    local answer
    answer, err = owner.ask(request, PURGE_TIMEOUT)

    if not answer then
        return nil, err
    end

    if answer.status ~= 200 then
        return nil, owner.problem(answer)
    end

    return tonumber(match(answer.body, '"entries":(%d+)')) or 0
end


--- The counters of all workers, under flat names: those of docs/lua.md.
-- @return a table of numbers; or nil and an error
function _M.stats()
    if C.ngx_http_sszip_ffi_stats(figures_ptr, size_ptr, out) ~= FFI_OK then
        return nil, result()
    end

    local n, read = tonumber(size_ptr[0]), figures_ptr[0]
    local stats = new_tab(0, n)

    for i = 0, n - 1 do
        local name = read[i].name
        stats[ffi_string(name.data, name.len)] = tonumber(read[i].number)
    end

    C.ngx_http_sszip_ffi_free()

    return stats
end


-- encoders

-- compress and decompress are called as tail calls: their errors name the line of the caller

-- compresses data at a level of at most max_level, by default 1
local function compress(compress_data, data, level, max_level)
    if type(data) ~= "string" then
        bad_type("data", "string", data)
    end

    if level == nil then
        level = 1

    elseif type(level) ~= "number" then
        bad_type("level", "number", level)
    end

    point(str1, data)

    return done(compress_data(str1, whole(level, max_level) or 255, out))
end


-- decompresses data to max bytes, 32 MiB by default
local function decompress(decompress_data, data, max)
    if type(data) ~= "string" then
        bad_type("data", "string", data)
    end

    if max == nil then
        max = 32 * 1024 * 1024

    elseif type(max) ~= "number" then
        bad_type("max", "number", max)
    end

    max = whole(max, 2 ^ 40)
    if not max then
        return nil, "max is a whole number of bytes"
    end

    point(str1, data)

    return done(decompress_data(str1, max, out))
end


--- Compresses data as one gzip member.
-- @param level 0 to 12, default 1
-- @return a string; or nil and an error
function _M.gzip(data, level)
    return compress(C.ngx_http_sszip_ffi_gzip, data, level, 12)
end


--- Decompresses gzip members.
-- @param max maximum length of the result, in bytes; default 32 MiB
-- @return a string; or nil and an error
function _M.gunzip(data, max)
    return decompress(C.ngx_http_sszip_ffi_gunzip, data, max)
end


--- Compresses data as one zstd frame.
-- @param level 1 to 19, default 1
-- @return a string; or nil and an error
function _M.zstd(data, level)
    return compress(C.ngx_http_sszip_ffi_zstd, data, level, 19)
end


--- Decompresses zstd frames, with windows of at most 8 MiB.
-- @param max maximum length of the result, in bytes; default 32 MiB
-- @return a string; or nil and an error
function _M.unzstd(data, max)
    return decompress(C.ngx_http_sszip_ffi_unzstd, data, max)
end


local OF_JSON = { fork = "string", preset = "string", form = "string" }
local OF_SSZ = { fork = "string", preset = "string", path = "string" }
local OF_CHECK = { fork = "string", preset = "string" }

local function convert(convert_data, name, data, opts)
    local fork = opts and opts.fork or ""
    local preset = opts and opts.preset or ""
    local form = opts and opts.form or ""
    local path = opts and opts.path or ""
    local said = what[0]

    said.name.data, said.name.len = name, #name
    said.fork.data, said.fork.len = fork, #fork
    said.preset.data, said.preset.len = preset, #preset
    said.form.data, said.form.len = form, #form
    said.path.data, said.path.len = path, #path
    point(str1, data)

    return done(convert_data(what, str1, out))
end


--- Converts JSON to SSZ.
-- @param type as the specs write it, or a method of JSON-RPC, or a route of the Beacon API
-- @param json the value, or an API's response that contains one
-- @param opts fork, preset ("mainnet"), form ("auto", "value" or "answer")
-- @return a string; or nil and an error
function _M.json_to_ssz(name, json, opts)
    if type(name) ~= "string" then
        bad_type("type", "string", name)
    end

    if type(json) ~= "string" then
        bad_type("json", "string", json)
    end

    options(opts, OF_JSON, "opts")

    return convert(C.ngx_http_sszip_ffi_json_to_ssz, name, json, opts)
end


--- Converts SSZ to JSON.
-- @param opts fork, preset ("mainnet"), path (of a part: "message.slot")
-- @return a string; or nil and an error
function _M.ssz_to_json(name, ssz, opts)
    if type(name) ~= "string" then
        bad_type("type", "string", name)
    end

    if type(ssz) ~= "string" then
        bad_type("ssz", "string", ssz)
    end

    options(opts, OF_SSZ, "opts")

    return convert(C.ngx_http_sszip_ffi_ssz_to_json, name, ssz, opts)
end


--- Checks that SSZ is a value of a type, by all rules.
-- @param opts fork, preset ("mainnet")
-- @return true; or nil and the fault
function _M.check(name, ssz, opts)
    if type(name) ~= "string" then
        bad_type("type", "string", name)
    end

    if type(ssz) ~= "string" then
        bad_type("ssz", "string", ssz)
    end

    options(opts, OF_CHECK, "opts")

    local checked, err = convert(C.ngx_http_sszip_ffi_check, name, ssz, opts)
    if not checked then
        return nil, err
    end

    return true
end


--- The root (hash_tree_root) of SSZ: "0x" and 64 hexadecimal digits.
-- @param opts as for ssz_to_json
-- @return a string; or nil and an error
function _M.root(name, ssz, opts)
    if type(name) ~= "string" then
        bad_type("type", "string", name)
    end

    if type(ssz) ~= "string" then
        bad_type("ssz", "string", ssz)
    end

    options(opts, OF_SSZ, "opts")

    return convert(C.ngx_http_sszip_ffi_root, name, ssz, opts)
end


return _M
