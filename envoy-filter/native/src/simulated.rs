//! Envoy as far as a stream of this module sees it, and many streams that go through it with
//! what happens to them in orders that are random: no hook panics, nothing is asked of a
//! stream that has ended, every stream comes to its end, what the node has answered is what
//! the client gets, and no scheduler is left.

#![allow(unsafe_code)] // it is C's

use std::cell::{RefCell, RefMut};
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sszip_core::gzip::inflate::gunzip;

use crate::abi::*;
use crate::hooks::*;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// What Envoy has of a stream, its client and its node.
#[derive(Default)]
struct World {
    filter: usize,
    request: Fields,
    response: Fields,
    /// What a hook for a body is called for, while it is.
    came: Option<Vec<u8>>,
    kept_request: Vec<u8>,
    /// What came is what is kept: another filter has kept it.
    is_same: bool,
    kept_response: Vec<u8>,
    limit: u64,
    /// One for both directions, as Envoy has it.
    goes_on: bool,
    events: Arc<Mutex<Vec<u64>>>,
    request_ended: bool,
    response_ended: bool,
    /// What the node was asked.
    asked: Option<Fields>,
    asked_body: Vec<u8>,
    asked_all: bool,
    /// What the client got.
    head: Option<Fields>,
    body: Vec<u8>,
    has_ended: bool,
    was_broken: bool,
    is_destroyed: bool,
    /// The client takes one piece at a time; and it has not taken the last one.
    is_slow: bool,
    is_behind: bool,
}

type Shared = RefCell<World>;

/// # Panics
/// The stream has ended.
fn world<'a>(stream: FilterPtr) -> RefMut<'a, World> {
    // SAFETY: streams of these tests are never freed.
    let world = unsafe { &*stream.cast::<Shared>() }.borrow_mut();
    assert!(!world.is_destroyed, "asked of a stream that has ended");
    world
}

fn bytes(buffer: ModuleBuffer<'_>) -> Vec<u8> {
    // SAFETY: it is laid out as Envoy's is, and there for the time of the call.
    unsafe { std::mem::transmute::<ModuleBuffer<'_>, EnvoyBuffer>(buffer).bytes() }.to_vec()
}

fn lent(bytes: &[u8]) -> EnvoyBuffer {
    EnvoyBuffer {
        ptr: bytes.as_ptr(),
        length: bytes.len(),
    }
}

impl World {
    fn fields(&mut self, kind: HeaderType) -> &mut Fields {
        match kind {
            HeaderType::Request => &mut self.request,
            HeaderType::Response => &mut self.response,
        }
    }

    fn part(&mut self, kind: BodyType) -> &mut Vec<u8> {
        match kind {
            BodyType::BufferedRequest if !self.is_same => &mut self.kept_request,
            BodyType::BufferedResponse => &mut self.kept_response,
            _ => self.came.as_mut().expect("within a hook for a body"),
        }
    }
}

extern "C" fn headers_size(stream: FilterPtr, kind: HeaderType) -> usize {
    world(stream).fields(kind).len()
}

extern "C" fn headers(stream: FilterPtr, kind: HeaderType, fields: *mut EnvoyHeader) -> bool {
    for (at, (key, value)) in world(stream).fields(kind).iter().enumerate() {
        let (key, value) = (lent(key), lent(value));
        // SAFETY: there is room for all of them.
        unsafe { fields.add(at).write(EnvoyHeader { key, value }) };
    }
    true
}

extern "C" fn set_header(
    stream: FilterPtr,
    kind: HeaderType,
    name: ModuleBuffer<'_>,
    value: ModuleBuffer<'_>,
) -> bool {
    let (name, value) = (bytes(name).to_ascii_lowercase(), bytes(value));
    let mut world = world(stream);
    let fields = world.fields(kind);
    fields.retain(|(known, _)| *known != name);
    if !value.is_empty() {
        fields.push((name, value));
    }
    true
}

/// Two pieces, if there are so many bytes.
fn pieces(world: &mut World, kind: BodyType) -> Vec<EnvoyBuffer> {
    let came = matches!(kind, BodyType::ReceivedRequest | BodyType::ReceivedResponse);
    if came && world.came.is_none() {
        return Vec::new();
    }
    let part = world.part(kind);
    let (first, second) = part.split_at(part.len() / 2);
    let both = [first, second].into_iter();
    both.filter(|piece| !piece.is_empty()).map(lent).collect()
}

extern "C" fn chunks_size(stream: FilterPtr, kind: BodyType) -> usize {
    pieces(&mut world(stream), kind).len()
}

extern "C" fn chunks(stream: FilterPtr, kind: BodyType, into: *mut EnvoyBuffer) -> bool {
    for (at, piece) in pieces(&mut world(stream), kind).into_iter().enumerate() {
        // SAFETY: there is room for all of them.
        unsafe { into.add(at).write(piece) };
    }
    true
}

extern "C" fn is_same(stream: FilterPtr) -> bool {
    world(stream).is_same
}

extern "C" fn append_body(stream: FilterPtr, kind: BodyType, more: ModuleBuffer<'_>) -> bool {
    world(stream).part(kind).extend(bytes(more));
    true
}

extern "C" fn drain_body(stream: FilterPtr, kind: BodyType, number: usize) -> bool {
    world(stream).part(kind).drain(..number);
    true
}

extern "C" fn buffer_limit(stream: FilterPtr) -> u64 {
    world(stream).limit
}

extern "C" fn set_buffer_limit(stream: FilterPtr, limit: u64) {
    world(stream).limit = limit;
}

extern "C" fn continue_decoding(stream: FilterPtr) {
    if !std::mem::replace(&mut world(stream).goes_on, true) {
        ask(stream);
    }
}

extern "C" fn continue_encoding(stream: FilterPtr) {
    if !std::mem::replace(&mut world(stream).goes_on, true) {
        give(stream, Vec::new());
    }
}

extern "C" fn reset(stream: FilterPtr, _reason: u32, _details: ModuleBuffer<'_>) {
    world(stream).was_broken = true;
    ends(stream);
}

extern "C" fn send_response(
    stream: FilterPtr,
    status: u32,
    _headers: *const ModuleHeader<'_>,
    _number: usize,
    _body: ModuleBuffer<'_>,
    _details: ModuleBuffer<'_>,
) {
    local_reply(stream, status);
}

extern "C" fn send_response_headers(
    stream: FilterPtr,
    fields: *const ModuleHeader<'_>,
    number: usize,
    is_all: bool,
) {
    // SAFETY: there are so many.
    let fields = unsafe { std::slice::from_raw_parts(fields, number) };
    let fields = fields.iter().map(|field| {
        let name = bytes(field.key).to_ascii_lowercase();
        (name, bytes(field.value))
    });
    response_head(stream, fields.collect(), is_all);
}

extern "C" fn send_response_data(stream: FilterPtr, piece: ModuleBuffer<'_>, is_last: bool) {
    assert!(!world(stream).is_behind, "more than the client takes");
    response_data(stream, bytes(piece), is_last);
    if !is_last && world(stream).is_slow {
        world(stream).is_behind = true;
        let filter = filter(stream);
        // SAFETY: of that stream.
        unsafe {
            envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
                stream, filter,
            );
        }
    }
}

extern "C" fn scheduler_new(stream: FilterPtr) -> SchedulerPtr {
    let events = Arc::clone(&world(stream).events);
    Arc::into_raw(events).cast_mut().cast()
}

extern "C" fn scheduler_commit(scheduler: SchedulerPtr, event: u64) {
    // SAFETY: from `scheduler_new`, and not deleted.
    let events = unsafe { &*scheduler.cast::<Mutex<Vec<u64>>>() };
    events.lock().expect("nobody panics").push(event);
}

extern "C" fn scheduler_delete(scheduler: SchedulerPtr) {
    // SAFETY: from `scheduler_new`, and not deleted before.
    drop(unsafe { Arc::from_raw(scheduler.cast::<Mutex<Vec<u64>>>()) });
}

/// What is done for a callback of that name; `None`: nothing.
pub fn of(name: &str) -> Option<*const ()> {
    let name = name.strip_prefix("envoy_dynamic_module_callback_http_")?;
    Some(match name {
        "get_headers_size" => headers_size as *const (),
        "get_headers" => headers as *const (),
        "set_header" => set_header as *const (),
        "get_body_chunks_size" => chunks_size as *const (),
        "get_body_chunks" => chunks as *const (),
        "received_buffered_request_body" => is_same as *const (),
        "append_body" => append_body as *const (),
        "drain_body" => drain_body as *const (),
        "get_buffer_limit" => buffer_limit as *const (),
        "set_buffer_limit" => set_buffer_limit as *const (),
        "filter_continue_decoding" => continue_decoding as *const (),
        "filter_continue_encoding" => continue_encoding as *const (),
        "filter_reset_stream" => reset as *const (),
        "send_response" => send_response as *const (),
        "send_response_headers" => send_response_headers as *const (),
        "send_response_data" => send_response_data as *const (),
        "filter_scheduler_new" => scheduler_new as *const (),
        "filter_scheduler_commit" => scheduler_commit as *const (),
        "filter_scheduler_delete" => scheduler_delete as *const (),
        _ => return None,
    })
}

// what goes through the filter

fn is_over(stream: FilterPtr) -> bool {
    // SAFETY: as in `world`.
    unsafe { &*stream.cast::<Shared>() }.borrow().is_destroyed
}

fn filter(stream: FilterPtr) -> *const c_void {
    world(stream).filter as *const c_void
}

/// The request goes on to the node with what is kept of it.
fn ask(stream: FilterPtr) {
    let mut world = world(stream);
    let kept = std::mem::take(&mut world.kept_request);
    world.asked_body.extend(kept);
    world.asked = Some(world.request.clone());
    world.asked_all = world.request_ended;
}

/// The response goes on to the client with what is kept of it, and this.
fn give(stream: FilterPtr, piece: Vec<u8>) {
    let mut world = world(stream);
    let kept = std::mem::take(&mut world.kept_response);
    world.head.get_or_insert_with(Fields::new);
    if world.body.is_empty() && !world.response.is_empty() {
        world.head = Some(std::mem::take(&mut world.response));
    }
    world.body.extend(kept);
    world.body.extend(piece);
    if world.response_ended {
        world.has_ended = true;
        drop(world);
        ends(stream);
    }
}

fn ends(stream: FilterPtr) {
    let filter = filter(stream);
    // SAFETY: of that stream.
    unsafe {
        envoy_dynamic_module_on_http_filter_stream_complete(stream, filter);
        envoy_dynamic_module_on_http_filter_destroy(filter);
    }
    world(stream).is_destroyed = true;
}

fn request_head(stream: FilterPtr, is_all: bool) {
    world(stream).request_ended = is_all;
    // SAFETY: of that stream.
    let status = unsafe {
        envoy_dynamic_module_on_http_filter_request_headers(stream, filter(stream), is_all)
    };
    if is_over(stream) {
        return;
    }
    let goes_on = status == HeadersStatus::Continue;
    world(stream).goes_on = goes_on;
    if goes_on {
        ask(stream);
    }
}

fn request_data(stream: FilterPtr, piece: Vec<u8>, is_last: bool, is_same: bool) {
    {
        let mut world = world(stream);
        world.request_ended = is_last;
        world.came = Some(piece);
        world.is_same = is_same;
    }
    // SAFETY: of that stream.
    let status = unsafe {
        envoy_dynamic_module_on_http_filter_request_body(stream, filter(stream), is_last)
    };
    if is_over(stream) {
        return;
    }
    let mut world = world(stream);
    world.is_same = false;
    let came = world.came.take().unwrap_or_default();
    world.goes_on = status == BodyStatus::Continue;
    if status != BodyStatus::StopIterationNoBuffer {
        // what is not kept has no limit
        let has_limit = !world.goes_on || !world.kept_request.is_empty();
        world.kept_request.extend(came);
        let (kept, limit) = (world.kept_request.len() as u64, world.limit);
        assert!(
            !has_limit || kept <= limit,
            "{kept} bytes kept, which Envoy refuses"
        );
    }
    if world.goes_on {
        drop(world);
        ask(stream);
    }
}

fn request_trailers(stream: FilterPtr) {
    world(stream).request_ended = true;
    // SAFETY: of that stream.
    let status =
        unsafe { envoy_dynamic_module_on_http_filter_request_trailers(stream, filter(stream)) };
    if is_over(stream) {
        return;
    }
    let goes_on = status == TrailersStatus::Continue;
    world(stream).goes_on = goes_on;
    if goes_on {
        ask(stream);
    }
}

fn response_head(stream: FilterPtr, fields: Fields, is_all: bool) {
    {
        let mut world = world(stream);
        world.response = fields;
        world.response_ended = is_all;
    }
    // SAFETY: of that stream.
    let status = unsafe {
        envoy_dynamic_module_on_http_filter_response_headers(stream, filter(stream), is_all)
    };
    if is_over(stream) {
        return;
    }
    let goes_on = status == HeadersStatus::Continue;
    world(stream).goes_on = goes_on;
    if goes_on {
        give(stream, Vec::new());
    }
}

fn response_data(stream: FilterPtr, piece: Vec<u8>, is_last: bool) {
    {
        let mut world = world(stream);
        world.response_ended = is_last;
        world.came = Some(piece);
    }
    // SAFETY: of that stream.
    let status = unsafe {
        envoy_dynamic_module_on_http_filter_response_body(stream, filter(stream), is_last)
    };
    if is_over(stream) {
        return;
    }
    let came = world(stream).came.take().unwrap_or_default();
    world(stream).goes_on = status == BodyStatus::Continue;
    match status {
        BodyStatus::Continue => give(stream, came),
        BodyStatus::StopIterationAndBuffer => world(stream).kept_response.extend(came),
        BodyStatus::StopIterationNoBuffer => assert!(came.is_empty(), "bytes are lost"),
    }
}

fn response_trailers(stream: FilterPtr) {
    world(stream).response_ended = true;
    // SAFETY: of that stream.
    let status =
        unsafe { envoy_dynamic_module_on_http_filter_response_trailers(stream, filter(stream)) };
    if is_over(stream) {
        return;
    }
    let goes_on = status == TrailersStatus::Continue;
    world(stream).goes_on = goes_on;
    if goes_on {
        give(stream, Vec::new());
    }
}

/// Envoy answers by itself: through the filters, unless a head waits.
fn local_reply(stream: FilterPtr, status: u32) {
    // SAFETY: of that stream.
    unsafe {
        envoy_dynamic_module_on_http_filter_local_reply(
            stream,
            filter(stream),
            status,
            EnvoyBuffer::NONE,
            false,
        );
    }
    if is_over(stream) {
        return;
    }
    let begun = world(stream).head.is_some();
    if begun {
        world(stream).was_broken = true;
        return ends(stream);
    }
    let fields = vec![(b":status".to_vec(), status.to_string().into_bytes())];
    let mut world = world(stream);
    world.kept_response.clear();
    world.response = fields;
    world.response_ended = true;
    drop(world);
    give(stream, Vec::new());
}

fn scheduled(stream: FilterPtr, event: u64) {
    // SAFETY: of that stream.
    unsafe {
        envoy_dynamic_module_on_http_filter_scheduled(stream, filter(stream), event);
    }
}

#[test]
fn streams_come_to_their_ends() {
    let rounds =
        std::env::var("SSZIP_ROUNDS").map_or(300, |rounds| rounds.parse().expect("a number"));
    for seed in 1..=rounds {
        round(seed);
    }
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }
}

/// What is left to happen to a stream.
struct Course {
    stream: FilterPtr,
    /// Pieces of the request; whether others have kept them.
    request: Vec<Vec<u8>>,
    is_same: bool,
    with_trailers: bool,
    sent_head: bool,
    sent_all: bool,
    is_call: bool,
    expected: Vec<u8>,
    /// Pieces of the answer, and after how many of them it is cut.
    answer: Vec<Vec<u8>>,
    cut_after: Option<usize>,
    framing: usize,
    /// The node does not wait for all of the request.
    is_early: bool,
    answered: usize,
    leaves: bool,
}

fn split(chance: &mut Chance, bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (piece, more) = rest.split_at((1 + chance.below(rest.len())).max(rest.len() / 6));
        pieces.push(piece.to_vec());
        rest = more;
    }
    pieces
}

impl Course {
    fn new(chance: &mut Chance, config: *const c_void) -> Self {
        let number = chance.below(4);
        let is_call = chance.below(3) > 0;
        let length = [10, 400, 3000, 20_000, 160_000][chance.below(5)];
        let (method, path, body, expected) = match is_call {
            true => {
                let hash = format!("0x{number:064x}");
                let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"eth_getBlockByHash\",\"params\":[\"{hash}\",true]}}");
                let x = "0".repeat([10, 3000, 30_000, 300_000][number]);
                let expected =
                    format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"hash\":\"{hash}\",\"x\":\"{x}\"}}}}");
                ("POST", "/".to_owned(), body, expected)
            }
            false => {
                let expected = format!("{{\"data\":\"{}\"}}", "ab".repeat(length));
                ("GET", format!("/page/{length}"), String::new(), expected)
            }
        };
        let framing = chance.below(2);
        let mut request = vec![(":method", method), (":path", &path), (":authority", "a")];
        let length = body.len().to_string();
        if is_call {
            request.push(("content-type", "application/json"));
            if chance.below(2) == 0 {
                request.push(("content-length", &length));
            }
        }
        if chance.below(3) > 0 {
            request.push(("accept-encoding", "gzip"));
        }
        let world = Box::new(Shared::new(World {
            request: request
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            limit: [100, 1 << 20][chance.below(2)],
            is_slow: chance.below(2) == 0,
            ..World::default()
        }));
        let stream: FilterPtr = Box::into_raw(world).cast();
        let filter = envoy_dynamic_module_on_http_filter_new(config, stream);
        world_of_new(stream, filter);
        let answer = split(chance, expected.as_bytes());
        Self {
            stream,
            request: split(chance, body.as_bytes()),
            is_same: chance.below(4) == 0,
            with_trailers: chance.below(4) == 0,
            sent_head: false,
            sent_all: false,
            is_call,
            expected: expected.into_bytes(),
            cut_after: (chance.below(5) == 0).then(|| chance.below(answer.len() + 1)),
            answer,
            framing,
            is_early: chance.below(2) == 0,
            answered: 0,
            leaves: chance.below(4) == 0,
        }
    }

    /// The next thing that happens, of those that can. Whether there was one.
    fn step(&mut self, chance: &mut Chance) -> bool {
        let stream = self.stream;
        let events: Vec<_> = {
            let world = world(stream);
            let mut events = world.events.lock().expect("nobody panics");
            events.drain(..).collect()
        };
        for event in &events {
            scheduled(stream, *event);
            if is_over(stream) {
                return true;
            }
        }
        if std::mem::take(&mut world(stream).is_behind) {
            let filter = filter(stream);
            // SAFETY: of that stream.
            unsafe {
                envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
                    stream, filter,
                );
            }
            return true;
        }
        if self.leaves && chance.below(12) == 0 {
            world(stream).was_broken = true;
            ends(stream);
            return true;
        }
        match chance.below(2) {
            0 => self.request(chance) || self.response() || !events.is_empty(),
            _ => self.response() || self.request(chance) || !events.is_empty(),
        }
    }

    fn request(&mut self, chance: &mut Chance) -> bool {
        let stream = self.stream;
        if !self.sent_head {
            self.sent_head = true;
            self.sent_all = self.request.is_empty();
            request_head(stream, self.sent_all);
            return true;
        }
        if self.sent_all {
            return false;
        }
        if self.request.is_empty() {
            self.sent_all = true;
            match chance.below(2) {
                0 => request_data(stream, Vec::new(), true, false),
                _ => request_trailers(stream),
            }
            return true;
        }
        // others have kept all of it
        let is_same = std::mem::take(&mut self.is_same);
        let piece = match is_same {
            true => std::mem::take(&mut self.request).concat(),
            false => self.request.remove(0),
        };
        self.sent_all = self.request.is_empty() && !self.with_trailers;
        request_data(stream, piece, self.sent_all, is_same);
        true
    }

    fn response(&mut self) -> bool {
        let stream = self.stream;
        {
            let world = world(stream);
            if world.asked.is_none() || !(world.asked_all || self.is_early) || world.response_ended
            {
                return false;
            }
        }
        let at = self.answered;
        self.answered += 1;
        if self.cut_after == Some(at) {
            local_reply(stream, 503);
            return true;
        }
        if at == 0 {
            let mut fields = vec![(":status", "200"), ("content-type", "application/json")];
            let length = self.expected.len().to_string();
            match self.framing {
                0 => fields.push(("content-length", &length)),
                _ => fields.push(("transfer-encoding", "chunked")),
            }
            let fields = fields
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()));
            response_head(stream, fields.collect(), false);
        } else if at <= self.answer.len() {
            response_data(stream, self.answer[at - 1].clone(), false);
        } else if self.with_trailers && self.framing > 0 {
            response_trailers(stream);
        } else {
            response_data(stream, Vec::new(), true);
        }
        true
    }

    /// What the client has got is right.
    fn judge(&self) {
        // SAFETY: as in `world`.
        let world = unsafe { &*self.stream.cast::<Shared>() }.borrow();
        assert!(world.is_destroyed);
        if world.was_broken {
            assert!(self.leaves || self.cut_after.is_some());
            return;
        }
        assert!(world.has_ended);
        let head = world.head.as_ref().expect("it has one");
        let field = |name: &str| {
            let mut fields = head.iter();
            fields.find_map(|(known, value)| (known == name.as_bytes()).then_some(value.as_slice()))
        };
        let status = field(":status");
        if status != Some(b"200") {
            assert!(
                self.cut_after.is_some() && status == Some(b"503"),
                "{head:?}"
            );
            return;
        }
        let length = world.body.len().to_string();
        assert!(field("content-length").is_none_or(|said| said == length.as_bytes()));
        let plain = match field("content-encoding") {
            Some(_) => gunzip(&world.body, 1 << 24).expect("it is gzip"),
            None => world.body.clone(),
        };
        assert!(plain == self.expected, "another body");
        let cached = String::from_utf8_lossy(field("cache-status").unwrap_or_default());
        assert!(
            !cached.contains("malformed"),
            "the request was not what it is"
        );
        if self.is_call && world.asked_all {
            assert!(world.asked_body.starts_with(b"{") && world.asked_body.ends_with(b"}"));
        }
    }
}

fn world_of_new(stream: FilterPtr, filter: *const c_void) {
    world(stream).filter = filter as usize;
}

/// Several streams at a time, on one thread as on a worker.
fn round(seed: u64) {
    let mut chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let hold = ["0", "1k 1ms", "64k 10ms", "1m 60s"][chance.below(4)];
    let cache = chance.below(2) == 0;
    let settings = format!(
        "{{\"hold\": \"{hold}\", \"cache\": {cache}, \"cache_lock_timeout\": \"50ms\", \"cache_namespace\": \"round-{seed}\"}}"
    );
    // SAFETY: the text is there.
    let config = unsafe {
        envoy_dynamic_module_on_http_filter_config_new(
            ptr::null_mut(),
            EnvoyBuffer::NONE,
            lent(settings.as_bytes()),
        )
    };
    assert!(!config.is_null());
    let mut courses: Vec<_> = (0..6).map(|_| Course::new(&mut chance, config)).collect();
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let going: Vec<_> = (0..courses.len())
            .filter(|&at| !is_over(courses[at].stream))
            .collect();
        if going.is_empty() {
            break;
        }
        let at = going[chance.below(going.len())];
        if !courses[at].step(&mut chance) {
            std::thread::sleep(Duration::from_micros(50));
        }
        assert!(
            Instant::now() < deadline,
            "round {seed}: a stream does not end"
        );
    }
    for course in &courses {
        course.judge();
        // SAFETY: as in `world`.
        let events = Arc::clone(&unsafe { &*course.stream.cast::<Shared>() }.borrow().events);
        // deadlines that do not count any more, and jobs that nobody waits for
        while Arc::strong_count(&events) > 2 && hold != "1m 60s" {
            std::thread::sleep(Duration::from_millis(1));
            assert!(
                Instant::now() < deadline,
                "round {seed}: a scheduler is left"
            );
        }
    }
    // SAFETY: no stream has it any more.
    unsafe { envoy_dynamic_module_on_http_filter_config_destroy(config.cast_mut()) };
}
