//! Envoy, in Rust's terms.

#![allow(unsafe_code)] // every callback is a call of C

use std::sync::{Arc, Mutex, PoisonError};

use sszip_core::exchange::{Field, HeadEdit};
use sszip_core::log::escaped;

use crate::abi::*;

/// A stream, for as long as one of its hooks runs.
#[derive(Clone, Copy)]
pub struct Stream(FilterPtr);

/// The fields of a head, pseudo-header fields among them.
pub struct Head(Vec<EnvoyHeader>);

/// A part of a body, in pieces.
pub struct Pieces(Vec<EnvoyBuffer>);

impl Head {
    /// One that came with a hook.
    ///
    /// # Safety
    /// There are so many fields, for as long as this is looked at.
    pub unsafe fn given(fields: *const EnvoyHeader, number: usize) -> Self {
        match number {
            0 => Self(Vec::new()),
            // SAFETY: the function's contract.
            _ => Self(unsafe { std::slice::from_raw_parts(fields, number) }.to_vec()),
        }
    }

    /// Each field.
    pub fn fields(&self) -> impl Iterator<Item = Field<'_>> + Clone {
        // SAFETY: the head is not changed while this is looked at, within a hook.
        self.0
            .iter()
            .map(|field| unsafe { (field.key.bytes(), field.value.bytes()) })
    }

    /// Each field but those of Envoy's that are no fields of HTTP/1.1.
    pub fn plain(&self) -> impl Iterator<Item = Field<'_>> + Clone {
        self.fields().filter(|(name, _)| !name.starts_with(b":"))
    }

    /// What makes the fields that these edits change what they are now, in one line each.
    pub fn fields_of(&self, edits: &[HeadEdit]) -> Vec<HeadEdit> {
        let of = |name: &str| {
            let is_it = |known: &[u8]| known.eq_ignore_ascii_case(name.as_bytes());
            let lines = self.fields().filter(|(known, _)| is_it(known));
            let lines: Vec<_> = lines.map(|(_, value)| value).collect();
            (!lines.is_empty()).then(|| lines.join(&b", "[..]).into())
        };
        let edits = edits.iter().map(|edit| HeadEdit {
            name: edit.name.clone(),
            value: of(&edit.name),
        });
        edits.collect()
    }

    /// The first of that name, in lower case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields();
        fields.find_map(|(known, value)| (known == name.as_bytes()).then_some(value))
    }
}

impl Pieces {
    /// What came with a hook.
    ///
    /// # Safety
    /// There are so many pieces, for as long as this is looked at.
    pub unsafe fn given(pieces: *const EnvoyBuffer, number: usize) -> Self {
        match number {
            0 => Self(Vec::new()),
            // SAFETY: the function's contract.
            _ => Self(unsafe { std::slice::from_raw_parts(pieces, number) }.to_vec()),
        }
    }

    /// Each piece.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: the body is not changed while this is looked at, within a hook.
        self.0.iter().map(|piece| unsafe { piece.bytes() })
    }

    /// How many bytes these are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|piece| piece.length).sum()
    }
}

impl Stream {
    /// Within a hook that came with this.
    pub fn new(filter: FilterPtr) -> Self {
        Self(filter)
    }

    /// A head.
    pub fn head(self, kind: HeaderType) -> Head {
        // SAFETY: within a hook; there is room for as many as there are.
        unsafe {
            let number = envoy_dynamic_module_callback_http_get_headers_size(self.0, kind);
            let none = EnvoyHeader {
                key: EnvoyBuffer::NONE,
                value: EnvoyBuffer::NONE,
            };
            let mut fields = vec![none; number];
            envoy_dynamic_module_callback_http_get_headers(self.0, kind, fields.as_mut_ptr());
            Head(fields)
        }
    }

    /// Changes a head.
    pub fn edit(self, kind: HeaderType, edits: &[HeadEdit]) {
        for edit in edits {
            self.set(kind, &edit.name, edit.value.as_deref());
        }
    }

    /// Sets a field to one line, or removes it.
    pub fn set(self, kind: HeaderType, name: &str, value: Option<&[u8]>) {
        let value = value.map_or(ModuleBuffer::NONE, ModuleBuffer::new);
        let name = ModuleBuffer::new(name.as_bytes());
        // SAFETY: within a hook.
        unsafe { envoy_dynamic_module_callback_http_set_header(self.0, kind, name, value) };
    }

    /// A part of a body.
    pub fn pieces(self, kind: BodyType) -> Pieces {
        // SAFETY: within a hook; there is room for as many as there are.
        unsafe {
            let number = envoy_dynamic_module_callback_http_get_body_chunks_size(self.0, kind);
            let mut pieces = vec![EnvoyBuffer::NONE; number];
            if number > 0 {
                envoy_dynamic_module_callback_http_get_body_chunks(
                    self.0,
                    kind,
                    pieces.as_mut_ptr(),
                );
            }
            Pieces(pieces)
        }
    }

    /// What is kept of the request's body, besides what a hook `has` just come for: that
    /// may be the same.
    pub fn kept(self, has: &Pieces) -> Pieces {
        // SAFETY: within a hook.
        let is_same = !has.0.is_empty()
            && unsafe { envoy_dynamic_module_callback_http_received_buffered_request_body(self.0) };
        match is_same {
            true => Pieces(Vec::new()),
            false => self.pieces(BodyType::BufferedRequest),
        }
    }

    /// Bytes after those that are there.
    pub fn append(self, kind: BodyType, bytes: &[u8]) {
        if !bytes.is_empty() {
            let bytes = ModuleBuffer::new(bytes);
            // SAFETY: within a hook.
            unsafe { envoy_dynamic_module_callback_http_append_body(self.0, kind, bytes) };
        }
    }

    /// Takes bytes away, from the first on.
    pub fn drain(self, kind: BodyType, number: usize) {
        if number > 0 {
            // SAFETY: within a hook.
            unsafe { envoy_dynamic_module_callback_http_drain_body(self.0, kind, number) };
        }
    }

    /// Puts so many bytes from the start behind all others, with no copy of ours.
    pub fn turn(self, kind: BodyType, number: usize) {
        let mut left = number;
        while left > 0 {
            let pieces = self.pieces(kind);
            let Some(piece) = pieces.iter().find(|piece| !piece.is_empty()) else {
                return;
            };
            let length = piece.len().min(left);
            self.append(kind, &piece[..length]);
            self.drain(kind, length);
            left -= length;
        }
    }

    /// How much may be kept of a body, in bytes.
    pub fn buffer_limit(self) -> u64 {
        // SAFETY: within a hook.
        unsafe { envoy_dynamic_module_callback_http_get_buffer_limit(self.0) }
    }

    /// Lets so much be kept of a body, if it is more than now.
    pub fn raise_buffer_limit(self, bytes: u64) {
        if bytes > self.buffer_limit() {
            // SAFETY: within a hook.
            unsafe { envoy_dynamic_module_callback_http_set_buffer_limit(self.0, bytes) };
        }
    }

    /// What the route says, or `None`.
    pub fn route_config<T>(self) -> Option<&'static T> {
        // SAFETY: within a hook. What it is was made by this module, and there is
        // nothing else that a route of this filter has.
        unsafe {
            let config = envoy_dynamic_module_callback_get_most_specific_route_config(self.0);
            config.cast::<T>().as_ref()
        }
    }

    /// The cluster that the request goes to; empty: none.
    pub fn cluster(self) -> &'static [u8] {
        let mut name = EnvoyBuffer::NONE;
        // SAFETY: within a hook, which is over before the route can go.
        unsafe {
            envoy_dynamic_module_callback_http_get_cluster_name(self.0, &raw mut name);
            name.bytes()
        }
    }

    /// The name of the request's route; empty: it has none.
    pub fn route(self) -> &'static [u8] {
        self.text(Attribute::XdsRouteName)
    }

    /// What the client speaks, as `HTTP/1.1`.
    pub fn protocol(self) -> &'static [u8] {
        self.text(Attribute::RequestProtocol)
    }

    /// The port at which the client has asked; 0: none.
    pub fn port(self) -> u16 {
        self.number(Attribute::DestinationPort) as u16
    }

    /// The number of the client's connection; 0: none.
    pub fn connection(self) -> u64 {
        self.number(Attribute::ConnectionId)
    }

    fn text(self, attribute: Attribute) -> &'static [u8] {
        let mut text = EnvoyBuffer::NONE;
        // SAFETY: within a hook, which is over before the stream can go.
        unsafe {
            envoy_dynamic_module_callback_http_filter_get_attribute_string(
                self.0,
                attribute,
                &raw mut text,
            );
            text.bytes()
        }
    }

    fn number(self, attribute: Attribute) -> u64 {
        let mut number = 0;
        // SAFETY: within a hook.
        let is_known = unsafe {
            envoy_dynamic_module_callback_http_filter_get_attribute_int(
                self.0,
                attribute,
                &raw mut number,
            )
        };
        if is_known {
            number
        } else {
            0
        }
    }

    /// What access logs show of it: names and texts.
    pub fn note<'a>(self, said: impl Iterator<Item = (&'a str, &'a [u8])>) {
        const NAMESPACE: &[u8] = b"sszip";
        let said = said.map(|(key, value)| ModuleHeader {
            key: ModuleBuffer::new(key.as_bytes()),
            value: ModuleBuffer::new(value),
        });
        let said: Vec<_> = said.collect();
        // SAFETY: within a hook.
        unsafe {
            envoy_dynamic_module_callback_http_set_dynamic_metadata_string_batch(
                self.0,
                ModuleBuffer::new(NAMESPACE),
                said.as_ptr(),
                said.len(),
            );
        }
    }

    /// Adds to the counter of that number.
    pub fn count(self, counter: usize, count: u64) {
        // SAFETY: within a hook.
        unsafe {
            envoy_dynamic_module_callback_http_filter_increment_counter(
                self.0, counter, NO_LABELS, 0, count,
            );
        }
    }

    /// Adds to the histogram of that number.
    pub fn record(self, histogram: usize, value: u64) {
        // SAFETY: within a hook.
        unsafe {
            envoy_dynamic_module_callback_http_filter_record_histogram_value(
                self.0, histogram, NO_LABELS, 0, value,
            );
        }
    }

    /// What can tell this stream something, from any thread.
    pub fn scheduler(self) -> Arc<Scheduler> {
        // SAFETY: within a hook.
        let scheduler = unsafe { envoy_dynamic_module_callback_http_filter_scheduler_new(self.0) };
        Arc::new(Scheduler::new(scheduler, Told::Stream))
    }

    /// Begins an answer, with its status. May end the stream's filter, and calls its
    /// hooks.
    pub fn respond_head(self, status: u16, edits: &[HeadEdit], is_all: bool) {
        let status = status.to_string();
        let set = edits.iter().filter_map(|edit| {
            let value = edit.value.as_deref()?;
            Some((edit.name.as_bytes(), value))
        });
        let fields: Vec<_> = [(&b":status"[..], status.as_bytes())]
            .into_iter()
            .chain(set)
            .map(|(key, value)| ModuleHeader {
                key: ModuleBuffer::new(key),
                value: ModuleBuffer::new(value),
            })
            .collect();
        // SAFETY: within a hook.
        unsafe {
            envoy_dynamic_module_callback_http_send_response_headers(
                self.0,
                fields.as_ptr(),
                fields.len(),
                is_all,
            );
        }
    }

    /// Goes on with an answer. As [`respond_head`](Self::respond_head).
    pub fn respond_body(self, bytes: &[u8], is_last: bool) {
        let bytes = ModuleBuffer::new(bytes);
        // SAFETY: within a hook.
        unsafe { envoy_dynamic_module_callback_http_send_response_data(self.0, bytes, is_last) };
    }

    /// A reply of Envoy's own kind. As [`respond_head`](Self::respond_head).
    pub fn reply(self, status: u16, text: &str, details: &str) {
        // SAFETY: within a hook.
        unsafe {
            envoy_dynamic_module_callback_http_send_response(
                self.0,
                u32::from(status),
                std::ptr::null(),
                0,
                ModuleBuffer::new(text.as_bytes()),
                ModuleBuffer::new(details.as_bytes()),
            );
        }
    }

    /// Breaks it off. As [`respond_head`](Self::respond_head).
    pub fn reset(self, details: &str) {
        let details = ModuleBuffer::new(details.as_bytes());
        // SAFETY: within a hook; 0: a reset of our own.
        unsafe { envoy_dynamic_module_callback_http_filter_reset_stream(self.0, 0, details) };
    }

    /// Lets a request go on. As [`respond_head`](Self::respond_head).
    pub fn continue_decoding(self) {
        // SAFETY: within a hook.
        unsafe { envoy_dynamic_module_callback_http_filter_continue_decoding(self.0) };
    }

    /// Lets a response go on. As [`respond_head`](Self::respond_head).
    pub fn continue_encoding(self) {
        // SAFETY: within a hook.
        unsafe { envoy_dynamic_module_callback_http_filter_continue_encoding(self.0) };
    }
}

/// A filter's configuration, within a hook that came with it.
#[derive(Clone, Copy)]
pub struct FilterConfig(FilterConfigPtr);

const NO_LABELS: *const ModuleBuffer<'_> = std::ptr::null();

impl FilterConfig {
    /// Within a hook that came with this.
    pub fn new(config: FilterConfigPtr) -> Self {
        Self(config)
    }

    /// The number of a new counter; 0: there is none.
    pub fn counter(self, name: &str) -> usize {
        let (mut id, name) = (0, ModuleBuffer::new(name.as_bytes()));
        // SAFETY: within the hook that reads the configuration.
        unsafe {
            envoy_dynamic_module_callback_http_filter_config_define_counter(
                self.0,
                name,
                NO_LABELS,
                0,
                &raw mut id,
            );
        }
        id
    }

    /// The same, of a gauge.
    pub fn gauge(self, name: &str) -> usize {
        let (mut id, name) = (0, ModuleBuffer::new(name.as_bytes()));
        // SAFETY: as above.
        unsafe {
            envoy_dynamic_module_callback_http_filter_config_define_gauge(
                self.0,
                name,
                NO_LABELS,
                0,
                &raw mut id,
            );
        }
        id
    }

    /// The same, of a histogram.
    pub fn histogram(self, name: &str) -> usize {
        let (mut id, name) = (0, ModuleBuffer::new(name.as_bytes()));
        // SAFETY: as above.
        unsafe {
            envoy_dynamic_module_callback_http_filter_config_define_histogram(
                self.0,
                name,
                NO_LABELS,
                0,
                &raw mut id,
            );
        }
        id
    }

    /// Sets the gauge of that number, on the main thread.
    pub fn set_gauge(self, gauge: usize, value: u64) {
        // SAFETY: within a hook.
        unsafe {
            envoy_dynamic_module_callback_http_filter_config_set_gauge(
                self.0, gauge, NO_LABELS, 0, value,
            );
        }
    }

    /// What can tell it something, from any thread.
    pub fn scheduler(self) -> Arc<Scheduler> {
        // SAFETY: within a hook.
        let scheduler =
            unsafe { envoy_dynamic_module_callback_http_filter_config_scheduler_new(self.0) };
        Arc::new(Scheduler::new(scheduler, Told::Config))
    }

    /// Makes a request of ours, for so many milliseconds. Its number; `None`: it can't be
    /// made.
    pub fn ask(
        self,
        cluster: &[u8],
        head: &[(Vec<u8>, Vec<u8>)],
        body: &[u8],
        ms: u64,
    ) -> Option<u64> {
        let fields: Vec<_> = head
            .iter()
            .map(|(name, value)| ModuleHeader {
                key: ModuleBuffer::new(name),
                value: ModuleBuffer::new(value),
            })
            .collect();
        let mut id = 0;
        // SAFETY: within a hook.
        let result = unsafe {
            envoy_dynamic_module_callback_http_filter_config_start_http_stream(
                self.0,
                &raw mut id,
                ModuleBuffer::new(cluster),
                fields.as_ptr(),
                fields.len(),
                ModuleBuffer::new(body),
                true,
                ms,
            )
        };
        (result == CalloutResult::Success).then_some(id)
    }

    /// Breaks it off, if it is there still.
    pub fn reset(self, id: u64) {
        // SAFETY: within a hook.
        unsafe { envoy_dynamic_module_callback_http_filter_config_reset_http_stream(self.0, id) };
    }
}

/// What can tell a stream or a filter's configuration something, though it may have ended.
#[derive(Debug)]
pub struct Scheduler {
    scheduler: SchedulerPtr,
    told: Told,
    /// Who is told is there, and its thread.
    is_open: Mutex<bool>,
}

/// Who is told.
#[derive(Clone, Copy, Debug)]
enum Told {
    /// A stream, on its worker.
    Stream,
    /// A configuration, on the main thread.
    Config,
}

// SAFETY: Envoy's scheduler may be used by any thread.
unsafe impl Send for Scheduler {}
// SAFETY: as above.
unsafe impl Sync for Scheduler {}

impl Scheduler {
    fn new(scheduler: SchedulerPtr, told: Told) -> Self {
        let is_open = Mutex::new(true);
        Self {
            scheduler,
            told,
            is_open,
        }
    }

    /// The hook `scheduled` of the stream, or `config_scheduled`, is called with that, on
    /// its thread, soon.
    pub fn commit(&self, event: u64) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_open {
            return;
        }
        // SAFETY: it is deleted with this, and the thread is there as long as it is open.
        unsafe {
            match self.told {
                Told::Stream => {
                    envoy_dynamic_module_callback_http_filter_scheduler_commit(
                        self.scheduler,
                        event,
                    );
                }
                Told::Config => {
                    envoy_dynamic_module_callback_http_filter_config_scheduler_commit(
                        self.scheduler,
                        event,
                    );
                }
            }
        }
    }

    /// The stream or the configuration has ended: it is told nothing any more.
    pub fn close(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // SAFETY: nobody has it any more.
        unsafe {
            match self.told {
                Told::Stream => {
                    envoy_dynamic_module_callback_http_filter_scheduler_delete(self.scheduler);
                }
                Told::Config => {
                    envoy_dynamic_module_callback_http_filter_config_scheduler_delete(
                        self.scheduler,
                    );
                }
            }
        }
    }
}

/// Whether Envoy only checks its configuration.
pub fn only_validates() -> bool {
    // SAFETY: may be called at any time.
    unsafe { envoy_dynamic_module_callback_is_validation_mode() }
}

/// How many workers there are, each with an event loop of its own.
pub fn workers() -> usize {
    // SAFETY: may be called at any time but before a server is there.
    let workers = unsafe { envoy_dynamic_module_callback_get_concurrency() };
    (workers as usize).max(1)
}

/// A line of Envoy's log.
pub fn log(level: LogLevel, message: &str) {
    // SAFETY: may be called at any time, by any thread.
    unsafe {
        if envoy_dynamic_module_callback_log_enabled(level) {
            let message = format!("sszip: {}", escaped(message));
            envoy_dynamic_module_callback_log_v2(
                level,
                ModuleBuffer::new(message.as_bytes()),
                ModuleBuffer::NONE,
                0,
            );
        }
    }
}
