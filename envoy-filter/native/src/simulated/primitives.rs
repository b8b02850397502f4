//! Headers, buffers and events of the simulated Envoy.

use std::sync::{Arc, Mutex, PoisonError};

use crate::abi::{EnvoyBuffer, ModuleBuffer};

/// The headers of a simulated message, in order.
pub type HeaderLines = Vec<(Vec<u8>, Vec<u8>)>;

/// The queue of events that schedulers send to a stream or a configuration.
pub type EventQueue = Arc<Mutex<Vec<u64>>>;

/// Takes the pending events.
pub fn take_events(events: &Mutex<Vec<u64>>) -> Vec<u64> {
    std::mem::take(&mut *events.lock().unwrap_or_else(PoisonError::into_inner))
}

pub fn copy_module_buffer(buffer: ModuleBuffer<'_>) -> Vec<u8> {
    // SAFETY: the layout is Envoy's, and the buffer is valid during the call.
    unsafe { std::mem::transmute::<ModuleBuffer<'_>, EnvoyBuffer>(buffer).as_slice() }.to_vec()
}

pub fn borrowed_buffer(bytes: &[u8]) -> EnvoyBuffer {
    EnvoyBuffer {
        ptr: bytes.as_ptr(),
        length: bytes.len(),
    }
}

/// Returns the value of the first line of that name.
pub fn first_header_value<'a>(fields: &'a HeaderLines, name: &str) -> Option<&'a [u8]> {
    let mut lines = fields.iter();
    lines.find_map(|(known, value)| (known == name.as_bytes()).then_some(value.as_slice()))
}

pub fn make_header_lines<'a>(lines: impl IntoIterator<Item = (&'a str, &'a str)>) -> HeaderLines {
    let lines = lines.into_iter();
    lines
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}
