//! The response cache. Entries are stored in the form in which they are sent, so that a hit needs
//! no compression.
//!
//! | module                  | concern                                                 |
//! |-------------------------|---------------------------------------------------------|
//! | [`class`]               | dependencies that limit the lifetime of entries         |
//! | [`chain`]               | state of a chain, and validity of the entries of it     |
//! | [`tip_floor`]           | lower bound of the heads that responses may show        |
//! | [`freshness`]           | lifetimes of JSON-RPC responses                         |
//! | [`response_directives`] | cache directives of response heads (RFC 9111)           |
//! | [`use_stale`]           | conditions for serving stale entries                    |
//! | [`vary_key`]            | vary keys, which separate variants of a response        |
//! | [`credentials`]         | effect of headers that identify the caller              |
//! | [`resource`]            | keys of resources, in each of their formats             |
//! | [`status`]              | cache status of a response                              |
//! | [`reason`]              | reason why a response was no hit, or is not stored      |
//! | [`entry`]               | entries: parts of batches, serialization, recompression |
//! | [`process`]             | state that the exchanges of a process share             |
//! | [`link`]                | owner client: connections of a process to the owner     |
//! | [`owner_protocol`]      | frames and messages between a process and the owner     |
//! | `owner`                 | rules of the owner process (feature `store`)            |
//! | `store`                 | entries on disk (feature `store`)                       |
//! | `fleet`                 | entries that machines share (feature `store`)           |
//!
//! No module reads a clock or blocks, except `store`, which may wait for the disk: times are
//! arguments, and waiters that have to be woken are results.

/// Defines an enum whose variants have names.
macro_rules! named_enum {
    ($(#[$attribute:meta])* $name:ident $($(#[$doc:meta])* $variant:ident $text:literal,)*) => {
        $(#[$attribute])*
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All variants, in order.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the name of the variant in logs and metrics; empty if there is nothing to
            /// report.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

pub mod chain;
pub mod class;
pub mod clock;
pub mod credentials;
pub mod entry;
#[cfg(feature = "store")]
pub mod fleet;
pub mod freshness;
pub mod link;
#[cfg(feature = "store")]
pub mod owner;
pub mod owner_protocol;
pub mod process;
pub mod reason;
pub mod resource;
pub mod response_directives;
pub mod status;
#[cfg(feature = "store")]
pub mod store;
pub mod tip_floor;
pub mod use_stale;
pub mod vary_key;

/// The cache key of a response: a 256-bit hash of all that the response depends on, such as route,
/// method, params and request headers.
pub type CacheKey = [u8; 32];

/// The part of a key that separates the responses of one chain from the responses of other chains:
/// the first half of the BLAKE3 hash of the namespace's encoding.
pub type CacheNamespace = [u8; 16];
