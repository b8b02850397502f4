//! Direct calls of the owner in this process, which `libsszip_owner.so` exports.
//! `cache-owner/include/sszip_owner.h` documents them.

#![allow(unsafe_code)] // the C ABI

use std::ffi::c_void;
use std::slice;

use sszip_core::cache::link::direct_owner::{DirectOwner, DirectReply};
use sszip_core::cache::owner_protocol::outgoing_frame::MAX_SENT_HEAD_BYTES;
use sszip_core::cache::owner_protocol::owner_message::LeaseReply;
use sszip_core::cache::owner_protocol::process_message::StoreRequest;
use sszip_core::cache::CacheKey;

/// An entry that a lookup has found, in the layout of the C struct `sszip_owner_entry`.
#[repr(C)]
#[derive(Debug)]
pub struct FoundOwnerEntry {
    generation: u64,
    fresh: u64,
    age: u64,
    bytes: *const u8,
    length: usize,
}

/// An entry to be stored, in the layout of the C struct `sszip_owner_store`.
#[repr(C)]
#[derive(Debug)]
pub struct OwnerStoreParts {
    head: *const u8,
    head_len: usize,
    first: *const u8,
    first_len: usize,
    rest: *const u8,
    rest_len: usize,
}

/// The C function type `sszip_owner_found`.
type OwnerFound = Option<unsafe extern "C" fn(context: *mut c_void, entry: *const FoundOwnerEntry)>;

/// The functions of the owner's library for direct calls.
#[derive(Clone, Copy, Debug)]
pub struct DirectOwnerFunctions {
    pub(super) lookup:
        unsafe extern "C" fn(u64, *const u8, u32, u16, OwnerFound, context: *mut c_void) -> u32,
    pub(super) store: unsafe extern "C" fn(u64, *const OwnerStoreParts) -> bool,
    pub(super) release: unsafe extern "C" fn(u64, *const u8) -> bool,
}

impl DirectOwner for DirectOwnerFunctions {
    fn lookup(
        &self,
        session: u64,
        key: &CacheKey,
        lease: Option<u32>,
        fleet_wait: u16,
    ) -> Option<DirectReply> {
        let mut found: Option<DirectReply> = None;
        // SAFETY: the key has 32 bytes; the function receives the context during the call.
        let result = unsafe {
            (self.lookup)(
                session,
                key.as_ptr(),
                lease.unwrap_or(0),
                fleet_wait,
                Some(copy_found_entry),
                (&raw mut found).cast(),
            )
        };
        let lease = match result {
            // `None` if memory was refused for the copy
            1 => return found,
            2 => LeaseReply::NoLease,
            3 => LeaseReply::Granted,
            4 => LeaseReply::Pending,
            5 => LeaseReply::Full,
            _ => return None,
        };
        Some(DirectReply::Missing(lease))
    }

    fn store(&self, session: u64, store: &StoreRequest) -> bool {
        let mut buffer = [0; MAX_SENT_HEAD_BYTES];
        let Some(head) = store.serialize_head(&mut buffer) else {
            return false;
        };
        let [first, rest] = store.entry.parts();
        let parts = OwnerStoreParts {
            head: head.as_ptr(),
            head_len: head.len(),
            first: first.as_ptr(),
            first_len: first.len(),
            rest: rest.as_ptr(),
            rest_len: rest.len(),
        };
        // SAFETY: the parts are readable during the call.
        unsafe { (self.store)(session, &raw const parts) }
    }

    fn release(&self, session: u64, key: &CacheKey) -> bool {
        // SAFETY: the key has 32 bytes.
        unsafe { (self.release)(session, key.as_ptr()) }
    }
}

/// Copies the entry that a lookup has found into its `context`, an `Option<DirectReply>`.
unsafe extern "C" fn copy_found_entry(context: *mut c_void, entry: *const FoundOwnerEntry) {
    // SAFETY: the header: both are valid during the call. The context is the one of `lookup`, which
    // does not use it meanwhile.
    let (found, entry) = unsafe { (&mut *context.cast::<Option<DirectReply>>(), entry.read()) };
    // SAFETY: the header: the bytes are readable during the call.
    let source = unsafe { slice::from_raw_parts(entry.bytes, entry.length) };
    let mut bytes = Vec::new();
    // nothing here panics: without memory the lookup is made by a message
    if bytes.try_reserve_exact(source.len()).is_ok() {
        bytes.extend_from_slice(source);
        *found = Some(DirectReply::Found {
            generation: entry.generation,
            fresh: entry.fresh,
            age: entry.age,
            bytes,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::{FoundOwnerEntry, OwnerStoreParts};

    #[test]
    fn layouts_and_results_equal_the_owner_header() {
        use sszip_owner::ffi::{sszip_owner_entry, sszip_owner_lookup_result, sszip_owner_store};
        macro_rules! same {
            ($own:ty, $its:ty: $($field:ident)*) => {
                assert_eq!(size_of::<$own>(), size_of::<$its>());
                $(assert_eq!(offset_of!($own, $field), offset_of!($its, $field), stringify!($field));)*
            };
        }
        same!(FoundOwnerEntry, sszip_owner_entry: generation fresh age bytes length);
        same!(OwnerStoreParts, sszip_owner_store: head head_len first first_len rest rest_len);
        let results = [
            sszip_owner_lookup_result::SSZIP_OWNER_NOT_HANDLED,
            sszip_owner_lookup_result::SSZIP_OWNER_FOUND,
            sszip_owner_lookup_result::SSZIP_OWNER_MISSING,
            sszip_owner_lookup_result::SSZIP_OWNER_LEASE_GRANTED,
            sszip_owner_lookup_result::SSZIP_OWNER_LEASE_PENDING,
            sszip_owner_lookup_result::SSZIP_OWNER_LEASES_FULL,
        ];
        assert_eq!(results.map(|result| result as u32), [0, 1, 2, 3, 4, 5]);
    }
}
