//! Safe wrappers of Envoy's callbacks.

#![allow(unsafe_code)] // every callback is a C call

use std::sync::{Arc, Mutex, PoisonError};

use sszip_core::exchange::{HeadEdit, Header};
use sszip_core::log::escape_log_text;
use sszip_envoy_carrier::head::{EnvoyHeaderMap, HostMessageHead};

use crate::abi::*;

/// A stream of Envoy, as the pointer that Envoy passed to a hook; valid while the hook runs.
#[derive(Clone, Copy)]
pub struct EnvoyStreamHandle(FilterPtr);

/// The headers of one message, to be read only: a copied list of pointers into Envoy's memory, valid
/// while the hook runs.
pub struct EnvoyMessageHead(Vec<EnvoyHeader>);

/// The header map of one message of a stream, as the carrier reads and changes it.
#[derive(Clone, Copy)]
pub struct StreamHeaders(EnvoyStreamHandle, HeaderType);

/// The slices of a body, or of a piece of it, in Envoy's memory, by a copy of Envoy's list.
pub struct EnvoyBodySlices(Vec<EnvoyBuffer>);

impl EnvoyMessageHead {
    /// Copies the list of headers that Envoy passed to a hook.
    ///
    /// # Safety
    /// `fields` are `number` headers, valid as long as this head.
    pub unsafe fn from_hook_headers(fields: *const EnvoyHeader, number: usize) -> Self {
        match number {
            0 => Self(Vec::new()),
            // SAFETY: the function's contract.
            _ => Self(unsafe { std::slice::from_raw_parts(fields, number) }.to_vec()),
        }
    }

    /// Returns the edits that restore the present values of the headers that `edits` changes, in
    /// one line each.
    pub fn restoring_edits(&self, edits: &[HeadEdit]) -> Vec<HeadEdit> {
        let of = |name: &str| {
            let is_it = |known: &[u8]| known.eq_ignore_ascii_case(name.as_bytes());
            let lines = self.iter_headers().filter(|(known, _)| is_it(known));
            let lines: Vec<_> = lines.map(|(_, value)| value).collect();
            (!lines.is_empty()).then(|| lines.join(&b", "[..]).into())
        };
        let edits = edits.iter().map(|edit| HeadEdit {
            name: edit.name.clone(),
            value: of(&edit.name),
        });
        edits.collect()
    }
}

impl HostMessageHead for EnvoyMessageHead {
    fn iter_headers(&self) -> impl Iterator<Item = Header<'_>> + Clone {
        // SAFETY: within a hook, the head is not changed while it is borrowed.
        self.0
            .iter()
            .map(|field| unsafe { (field.key.as_slice(), field.value.as_slice()) })
    }
}

impl EnvoyHeaderMap for StreamHeaders {
    type Head = EnvoyMessageHead;

    fn copy_headers(&self) -> EnvoyMessageHead {
        self.0.copy_message_head(self.1)
    }

    fn set_header(&self, name: &str, value: Option<&[u8]>) {
        self.0.set_header(self.1, name, value);
    }
}

impl EnvoyBodySlices {
    /// Copies the list of slices that Envoy passed to a hook.
    ///
    /// # Safety
    /// `pieces` are `number` slices, valid as long as these slices.
    pub unsafe fn from_hook_slices(pieces: *const EnvoyBuffer, number: usize) -> Self {
        match number {
            0 => Self(Vec::new()),
            // SAFETY: the function's contract.
            _ => Self(unsafe { std::slice::from_raw_parts(pieces, number) }.to_vec()),
        }
    }

    /// Iterates over all slices.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: within a hook, the body is not changed while it is borrowed.
        self.0.iter().map(|piece| unsafe { piece.as_slice() })
    }

    /// Returns the number of bytes in all slices.
    pub fn len(&self) -> usize {
        self.0.iter().map(|piece| piece.length).sum()
    }
}

impl EnvoyStreamHandle {
    /// Wraps the pointer that Envoy passed to a hook, for the time of the hook.
    pub fn new(filter: FilterPtr) -> Self {
        Self(filter)
    }

    /// Copies Envoy's list of the headers of a message of the stream.
    pub fn copy_message_head(self, kind: HeaderType) -> EnvoyMessageHead {
        // SAFETY: within a hook; `fields` has room for all headers.
        unsafe {
            let number = envoy_dynamic_module_callback_http_get_headers_size(self.0, kind);
            let none = EnvoyHeader {
                key: EnvoyBuffer::NONE,
                value: EnvoyBuffer::NONE,
            };
            let mut fields = vec![none; number];
            envoy_dynamic_module_callback_http_get_headers(self.0, kind, fields.as_mut_ptr());
            EnvoyMessageHead(fields)
        }
    }

    /// Returns access to the headers of a message of the stream.
    pub fn access_headers(self, kind: HeaderType) -> StreamHeaders {
        StreamHeaders(self, kind)
    }

    /// Applies edits to a head.
    pub fn apply_head_edits(self, kind: HeaderType, edits: &[HeadEdit]) {
        self.access_headers(kind).apply_edits(edits);
    }

    /// Sets a header to one line, or removes it.
    pub fn set_header(self, kind: HeaderType, name: &str, value: Option<&[u8]>) {
        let value = value.map_or(ModuleBuffer::NONE, ModuleBuffer::new);
        let name = ModuleBuffer::new(name.as_bytes());
        // SAFETY: within a hook.
        unsafe { envoy_dynamic_module_callback_http_set_header(self.0, kind, name, value) };
    }

    /// Copies Envoy's list of the slices of a body buffer.
    pub fn body_slices(self, kind: BodyType) -> EnvoyBodySlices {
        // SAFETY: within a hook; `pieces` has room for all slices.
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
            EnvoyBodySlices(pieces)
        }
    }

    /// Returns the buffered part of the request body, without the part `has` that the hook
    /// received: the two may be the same bytes.
    pub fn earlier_buffered_request_body(self, has: &EnvoyBodySlices) -> EnvoyBodySlices {
        // SAFETY: within a hook.
        let is_same = !has.0.is_empty()
            && unsafe { envoy_dynamic_module_callback_http_received_buffered_request_body(self.0) };
        match is_same {
            true => EnvoyBodySlices(Vec::new()),
            false => self.body_slices(BodyType::BufferedRequest),
        }
    }

    /// Appends bytes to a body buffer.
    pub fn append_to_body_buffer(self, kind: BodyType, bytes: &[u8]) {
        if !bytes.is_empty() {
            let bytes = ModuleBuffer::new(bytes);
            // SAFETY: within a hook.
            unsafe { envoy_dynamic_module_callback_http_append_body(self.0, kind, bytes) };
        }
    }

    /// Removes bytes from the start of a body buffer.
    pub fn drain_body(self, kind: BodyType, number: usize) {
        if number > 0 {
            // SAFETY: within a hook.
            unsafe { envoy_dynamic_module_callback_http_drain_body(self.0, kind, number) };
        }
    }

    /// Moves `number` bytes from the start of a body buffer to its end, without
    /// a copy by the module.
    pub fn move_buffer_start_to_end(self, kind: BodyType, number: usize) {
        let mut left = number;
        while left > 0 {
            let pieces = self.body_slices(kind);
            let Some(piece) = pieces.iter().find(|piece| !piece.is_empty()) else {
                return;
            };
            let length = piece.len().min(left);
            self.append_to_body_buffer(kind, &piece[..length]);
            self.drain_body(kind, length);
            left -= length;
        }
    }

    /// Returns the buffer limit of the stream, in bytes.
    pub fn buffer_limit(self) -> u64 {
        // SAFETY: within a hook.
        unsafe { envoy_dynamic_module_callback_http_get_buffer_limit(self.0) }
    }

    /// Raises the buffer limit of the stream to `bytes`, unless it is higher.
    pub fn raise_buffer_limit(self, bytes: u64) {
        if bytes > self.buffer_limit() {
            // SAFETY: within a hook.
            unsafe { envoy_dynamic_module_callback_http_set_buffer_limit(self.0, bytes) };
        }
    }

    /// Returns the configuration of the stream's route, or `None`.
    pub fn route_config<T>(self) -> Option<&'static T> {
        // SAFETY: within a hook. This module made the configuration, and a
        // route of this filter has no configuration of another type.
        unsafe {
            let config = envoy_dynamic_module_callback_get_most_specific_route_config(self.0);
            config.cast::<T>().as_ref()
        }
    }

    /// Returns the name of the request's cluster; empty: none.
    pub fn cluster_name(self) -> &'static [u8] {
        let mut name = EnvoyBuffer::NONE;
        // SAFETY: within a hook, during which the route exists.
        unsafe {
            envoy_dynamic_module_callback_http_get_cluster_name(self.0, &raw mut name);
            name.as_slice()
        }
    }

    /// Returns the name of the request's route; empty: it has none.
    pub fn xds_route_name(self) -> &'static [u8] {
        self.string_attribute(StreamAttribute::XdsRouteName)
    }

    /// Returns the protocol of the client, such as `HTTP/1.1`.
    pub fn client_protocol(self) -> &'static [u8] {
        self.string_attribute(StreamAttribute::RequestProtocol)
    }

    /// Returns the port at which the request arrived; 0: unknown.
    pub fn destination_port(self) -> u16 {
        self.number_attribute(StreamAttribute::DestinationPort) as u16
    }

    /// Returns the id of the client's connection; 0: unknown.
    pub fn client_connection_id(self) -> u64 {
        self.number_attribute(StreamAttribute::ConnectionId)
    }

    /// Returns an attribute of the stream; empty: unknown. The bytes are valid during the hook
    /// only.
    fn string_attribute(self, attribute: StreamAttribute) -> &'static [u8] {
        let mut text = EnvoyBuffer::NONE;
        // SAFETY: within a hook, during which the stream exists.
        unsafe {
            envoy_dynamic_module_callback_http_filter_get_attribute_string(
                self.0,
                attribute,
                &raw mut text,
            );
            text.as_slice()
        }
    }

    /// Returns an attribute of the stream; 0: unknown.
    fn number_attribute(self, attribute: StreamAttribute) -> u64 {
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

    /// Sets the names and values that access logs print as dynamic metadata of the stream.
    pub fn set_dynamic_metadata<'a>(self, entries: impl Iterator<Item = (&'a str, &'a [u8])>) {
        const NAMESPACE: &[u8] = b"sszip";
        let entries = entries.map(|(key, value)| ModuleHeader {
            key: ModuleBuffer::new(key.as_bytes()),
            value: ModuleBuffer::new(value),
        });
        let entries: Vec<_> = entries.collect();
        // SAFETY: within a hook.
        unsafe {
            envoy_dynamic_module_callback_http_set_dynamic_metadata_string_batch(
                self.0,
                ModuleBuffer::new(NAMESPACE),
                entries.as_ptr(),
                entries.len(),
            );
        }
    }

    /// Adds `count` to the counter with the id `counter`.
    pub fn increment_counter(self, counter: usize, count: u64) {
        // SAFETY: within a hook.
        unsafe {
            envoy_dynamic_module_callback_http_filter_increment_counter(
                self.0, counter, NO_LABELS, 0, count,
            );
        }
    }

    /// Records a value in the histogram with the id `histogram`.
    pub fn record_histogram(self, histogram: usize, value: u64) {
        // SAFETY: within a hook.
        unsafe {
            envoy_dynamic_module_callback_http_filter_record_histogram_value(
                self.0, histogram, NO_LABELS, 0, value,
            );
        }
    }

    /// Creates a scheduler whose events reach this stream, from any thread.
    pub fn create_stream_scheduler(self) -> Arc<EnvoyEventScheduler> {
        // SAFETY: within a hook.
        let scheduler = unsafe { envoy_dynamic_module_callback_http_filter_scheduler_new(self.0) };
        Arc::new(EnvoyEventScheduler::new(
            scheduler,
            EnvoyEventReceiver::Stream,
        ))
    }

    /// Starts a response with its head. May end the stream's filter, and calls
    /// its hooks.
    pub fn send_response_head(self, status: u16, edits: &[HeadEdit], is_all: bool) {
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

    /// Sends a piece of the response body. May end the stream's filter, and
    /// calls its hooks.
    pub fn send_response_piece(self, bytes: &[u8], is_last: bool) {
        let bytes = ModuleBuffer::new(bytes);
        // SAFETY: within a hook.
        unsafe { envoy_dynamic_module_callback_http_send_response_data(self.0, bytes, is_last) };
    }

    /// Sends a local reply. May end the stream's filter, and calls its hooks.
    pub fn send_local_reply(self, status: u16, text: &str, details: &str) {
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

    /// Resets the stream. May end the stream's filter, and calls its hooks.
    pub fn reset_stream(self, details: &str) {
        let details = ModuleBuffer::new(details.as_bytes());
        // SAFETY: within a hook; reason 0 is a local reset.
        unsafe { envoy_dynamic_module_callback_http_filter_reset_stream(self.0, 0, details) };
    }

    /// Resumes a stopped request. May end the stream's filter, and calls its
    /// hooks.
    pub fn continue_request_decoding(self) {
        // SAFETY: within a hook.
        unsafe { envoy_dynamic_module_callback_http_filter_continue_decoding(self.0) };
    }

    /// Resumes a stopped response. May end the stream's filter, and calls its
    /// hooks.
    pub fn continue_response_encoding(self) {
        // SAFETY: within a hook.
        unsafe { envoy_dynamic_module_callback_http_filter_continue_encoding(self.0) };
    }
}

/// A filter's configuration in Envoy, as the pointer that Envoy passed to a hook; valid while the
/// hook runs.
#[derive(Clone, Copy)]
pub struct FilterConfigHandle(FilterConfigPtr);

const NO_LABELS: *const ModuleBuffer<'_> = std::ptr::null();

impl FilterConfigHandle {
    /// Wraps the pointer that Envoy passed to a hook, for the time of the hook.
    pub fn new(config: FilterConfigPtr) -> Self {
        Self(config)
    }

    /// Defines a counter and returns its id; 0: it could not be defined.
    pub fn define_counter(self, name: &str) -> usize {
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

    /// Defines a gauge and returns its id; 0: it could not be defined.
    pub fn define_gauge(self, name: &str) -> usize {
        let (mut id, name) = (0, ModuleBuffer::new(name.as_bytes()));
        // SAFETY: within the hook that reads the configuration.
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

    /// Defines a histogram and returns its id; 0: it could not be defined.
    pub fn define_histogram(self, name: &str) -> usize {
        let (mut id, name) = (0, ModuleBuffer::new(name.as_bytes()));
        // SAFETY: within the hook that reads the configuration.
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

    /// Sets the gauge of that id, on the main thread.
    pub fn set_gauge(self, gauge: usize, value: u64) {
        // SAFETY: within a hook.
        unsafe {
            envoy_dynamic_module_callback_http_filter_config_set_gauge(
                self.0, gauge, NO_LABELS, 0, value,
            );
        }
    }

    /// Creates a scheduler whose events reach this filter's configuration, from any thread.
    pub fn create_config_scheduler(self) -> Arc<EnvoyEventScheduler> {
        // SAFETY: within a hook.
        let scheduler =
            unsafe { envoy_dynamic_module_callback_http_filter_config_scheduler_new(self.0) };
        Arc::new(EnvoyEventScheduler::new(
            scheduler,
            EnvoyEventReceiver::Config,
        ))
    }

    /// Sends a callout with a timeout of `ms` milliseconds, and returns its id;
    /// `None`: it could not be sent.
    pub fn send_callout(
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
        (result == CalloutInitResult::Success).then_some(id)
    }

    /// Resets a callout, if it is still in flight.
    pub fn reset_callout_in_flight(self, id: u64) {
        // SAFETY: within a hook.
        unsafe { envoy_dynamic_module_callback_http_filter_config_reset_http_stream(self.0, id) };
    }
}

/// Envoy's scheduler of events for a stream or a filter's configuration, which may have ended. Any
/// thread may use it.
#[derive(Debug)]
pub struct EnvoyEventScheduler {
    scheduler: SchedulerPtr,
    target: EnvoyEventReceiver,
    /// The target and its thread exist. Locked while an event is sent.
    is_open: Mutex<bool>,
}

/// The receiver of a scheduler's events.
#[derive(Clone, Copy, Debug)]
enum EnvoyEventReceiver {
    /// A stream, on its worker.
    Stream,
    /// A configuration, on the main thread.
    Config,
}

// SAFETY: Envoy's scheduler may be used by any thread.
unsafe impl Send for EnvoyEventScheduler {}
// SAFETY: Envoy's scheduler may be used by any thread.
unsafe impl Sync for EnvoyEventScheduler {}

impl EnvoyEventScheduler {
    fn new(scheduler: SchedulerPtr, target: EnvoyEventReceiver) -> Self {
        let is_open = Mutex::new(true);
        Self {
            scheduler,
            target,
            is_open,
        }
    }

    /// Schedules a call of the target's hook `scheduled` or `config_scheduled`
    /// with `event`, on its thread.
    pub fn schedule_event(&self, event: u64) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_open {
            return;
        }
        // SAFETY: the scheduler is deleted with this object, and the thread
        // exists while it is open.
        unsafe {
            match self.target {
                EnvoyEventReceiver::Stream => {
                    envoy_dynamic_module_callback_http_filter_scheduler_commit(
                        self.scheduler,
                        event,
                    );
                }
                EnvoyEventReceiver::Config => {
                    envoy_dynamic_module_callback_http_filter_config_scheduler_commit(
                        self.scheduler,
                        event,
                    );
                }
            }
        }
    }

    /// Stops all further events, because the stream or the configuration has
    /// ended.
    pub fn close_event_scheduler(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

impl Drop for EnvoyEventScheduler {
    fn drop(&mut self) {
        // SAFETY: no other reference to the scheduler is left.
        unsafe {
            match self.target {
                EnvoyEventReceiver::Stream => {
                    envoy_dynamic_module_callback_http_filter_scheduler_delete(self.scheduler);
                }
                EnvoyEventReceiver::Config => {
                    envoy_dynamic_module_callback_http_filter_config_scheduler_delete(
                        self.scheduler,
                    );
                }
            }
        }
    }
}

/// Returns whether Envoy only validates its configuration.
pub fn is_envoy_validation_mode() -> bool {
    // SAFETY: may be called at any time.
    unsafe { envoy_dynamic_module_callback_is_validation_mode() }
}

/// Returns the number of workers; each has an event loop of its own.
pub fn envoy_worker_count() -> usize {
    // SAFETY: may be called at any time after the server is created.
    let workers = unsafe { envoy_dynamic_module_callback_get_concurrency() };
    (workers as usize).max(1)
}

/// Writes a line to Envoy's log.
pub fn write_envoy_log(level: LogLevel, message: &str) {
    // SAFETY: may be called at any time, by any thread.
    unsafe {
        if envoy_dynamic_module_callback_log_enabled(level) {
            let message = format!("sszip: {}", escape_log_text(message));
            envoy_dynamic_module_callback_log_v2(
                level,
                ModuleBuffer::new(message.as_bytes()),
                ModuleBuffer::NONE,
                0,
            );
        }
    }
}
