// A proxy for the filter that Envoy loads: the host functions of proxy-wasm 0.2.1 that one
// exchange needs; all others fail. It is a test bed, and a second host next to Envoy.
//
//   node tests/sandbox/proxy.mjs FILTER.wasm

import { strict as assert } from "node:assert";
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";

const [OK, NOT_FOUND] = [0, 1];
const [CONTINUE, PAUSE] = [0, 1];
const [REQUEST, RESPONSE] = [0, 2]; // heads
const [BODY, CONFIGURATION] = [1, 7]; // buffers
const [ROOT, STREAM] = [1, 2]; // contexts
const [POLICY_ROOT, FIRST_PIPELINED] = [101, 1000];
const [QUEUE, CONNECTION] = [5, 7]; // ids

const module = new WebAssembly.Module(readFileSync(process.argv[2]));
const heads = new Map();
const buffers = new Map();
const logged = [];
const pipelined = { "connection\0id": [CONNECTION, 0, 0, 0, 0, 0, 0, 0], "request\0protocol": Buffer.from("HTTP/1.1") };
// responses and messages of the queue that the filter has sent, and the period of its timer
let [responses, posts, period] = [0, 0, 0];
let memory;
let filter;

const bytes = (at, length) => new Uint8Array(memory.buffer, at, length);
const text = (at, length) => Buffer.from(bytes(at, length)).toString();

// Copies bytes to the filter, into memory of its own.
function give(value, at, length) {
    const place = value.length > 0 ? filter.malloc(value.length) : 0;
    bytes(place, value.length).set(value);
    const view = new DataView(memory.buffer);
    view.setUint32(at, place, true);
    view.setUint32(length, value.length, true);
    return OK;
}

function pairs(fields) {
    const sizes = Buffer.alloc(4 + 8 * fields.length);
    sizes.writeUInt32LE(fields.length);
    fields.forEach(([name, value], index) => {
        sizes.writeUInt32LE(name.length, 4 + 8 * index);
        sizes.writeUInt32LE(value.length, 8 + 8 * index);
    });
    return Buffer.concat([sizes, Buffer.from(fields.flat().map((one) => `${one}\0`).join(""))]);
}

const implemented = {
    proxy_log: (level, at, length) => (logged.push(text(at, length)), OK),
    proxy_get_buffer_bytes: (kind, start, most, at, length) =>
        buffers.has(kind) ? give(buffers.get(kind).subarray(start, start + most), at, length) : NOT_FOUND,
    proxy_set_buffer_bytes: (kind, start, replaced, at, length) => {
        if (!buffers.has(kind)) return NOT_FOUND;
        assert.equal(start, 0);
        buffers.set(kind, Buffer.from(bytes(at, length)));
        return OK;
    },
    proxy_get_header_map_pairs: (kind, at, length) =>
        heads.has(kind) ? give(pairs(heads.get(kind)), at, length) : NOT_FOUND,
    proxy_replace_header_map_value: (kind, name, named, at, length) => {
        const key = text(name, named).toLowerCase();
        const others = heads.get(kind).filter(([known]) => known !== key);
        heads.set(kind, [...others, [key, text(at, length)]]);
        return OK;
    },
    proxy_remove_header_map_value: (kind, name, named) => {
        const key = text(name, named).toLowerCase();
        heads.set(kind, heads.get(kind).filter(([known]) => known !== key));
        return OK;
    },
    proxy_get_property: (path, size, at, length) => {
        const known = { "response\0code_details": Buffer.from("via_upstream"), ...pipelined };
        const value = known[text(path, size)];
        return value ? give(value, at, length) : NOT_FOUND;
    },
    proxy_set_property: () => OK,
    proxy_get_shared_data: () => NOT_FOUND,
    proxy_set_shared_data: () => OK,
    proxy_set_effective_context: () => OK,
    proxy_set_tick_period_milliseconds: (milliseconds) => ((period = milliseconds), OK),
    proxy_register_shared_queue: (name, length, at) => {
        new DataView(memory.buffer).setUint32(at, QUEUE, true);
        return OK;
    },
    proxy_enqueue_shared_queue: () => (posts++, OK),
    proxy_send_local_response: () => (responses++, OK),
};

const wasi = {
    clock_time_get: (clock, precision, at) => {
        new DataView(memory.buffer).setBigUint64(at, process.hrtime.bigint(), true);
        return OK;
    },
    random_get: (at, length) => (bytes(at, length).fill(7), OK),
};

const refused = { get: (known, name) => known[name] ?? (() => NOT_FOUND) };
filter = new WebAssembly.Instance(module, {
    env: new Proxy(implemented, refused),
    wasi_snapshot_preview1: wasi,
}).exports;
memory = filter.memory;

function configure(root, json) {
    buffers.set(CONFIGURATION, Buffer.from(json));
    filter.proxy_on_context_create(root, 0);
    assert.equal(filter.proxy_on_vm_start(root, 0), 1);
    return filter.proxy_on_configure(root, json.length);
}

filter._initialize();
assert.equal(configure(100, '{"cache_path": "/x"}'), 0);
assert.match(logged.join("\n"), /"cache_path" is not available in the sandbox/);
assert.equal(configure(ROOT, '{"types": "application/json"}'), 1);

// One response, in pieces: compressed in one shot, with its length.
const plain = Buffer.from(`["${"0123456789abcdef".repeat(3000)}"]`);
filter.proxy_on_context_create(STREAM, ROOT);
heads.set(REQUEST, [
    [":method", "GET"],
    [":path", "/"],
    [":authority", "node"],
    ["accept-encoding", "gzip"],
]);
assert.equal(filter.proxy_on_request_headers(STREAM, 4, 1), CONTINUE);
assert.equal(new Map(heads.get(REQUEST)).get("accept-encoding"), "identity");
heads.set(RESPONSE, [
    [":status", "200"],
    ["content-type", "application/json"],
    ["content-length", `${plain.length}`],
]);
assert.equal(filter.proxy_on_response_headers(STREAM, 3, 0), PAUSE);
for (let at = 0; at <= plain.length; at += 10_000) {
    const piece = plain.subarray(at, at + 10_000);
    const isLast = at + 10_000 > plain.length;
    buffers.set(BODY, piece);
    const action = filter.proxy_on_response_body(STREAM, piece.length, isLast ? 1 : 0);
    assert.equal(action, isLast ? CONTINUE : PAUSE);
    assert.equal(buffers.get(BODY).length === 0, !isLast);
}
const sent = buffers.get(BODY);
const headers = new Map(heads.get(RESPONSE));
assert.equal(headers.get("content-encoding"), "gzip");
assert.equal(headers.get("content-length"), `${sent.length}`);
assert.ok(gunzipSync(sent).equals(plain));
filter.proxy_on_log(STREAM);
assert.equal(filter.proxy_on_done(STREAM), 1);
filter.proxy_on_delete(STREAM);

// Of pipelined requests, every second response waits for a call of the root. One call resumes a
// limited number of streams, and the timer the rest: a proxy handles a message of the queue before
// it reads its connections.
assert.equal(configure(POLICY_ROOT, '{"method": "deny debug_*"}'), 1);
heads.set(REQUEST, [
    [":method", "GET"],
    [":path", "/"],
    [":authority", "node"],
    ["upgrade", "websocket"],
]);
const streams = Array.from({ length: 200 }, (_, number) => FIRST_PIPELINED + number);
for (const stream of streams) {
    filter.proxy_on_context_create(stream, POLICY_ROOT);
    assert.equal(filter.proxy_on_request_headers(stream, 4, 1), PAUSE);
}
assert.equal(responses, 100);
assert.equal(posts, 1);
filter.proxy_on_queue_ready(POLICY_ROOT, QUEUE);
assert.ok(responses > 100 && responses < 200);
for (let calls = 0; responses < 200; calls++) {
    assert.ok(calls < 10);
    assert.ok(period > 0);
    filter.proxy_on_tick(POLICY_ROOT);
}
assert.equal(posts, 1);
for (const stream of streams) {
    filter.proxy_on_log(stream);
    assert.equal(filter.proxy_on_done(stream), 1);
    filter.proxy_on_delete(stream);
}
