//! Answers kept in the form in which they will be sent, so that a hit costs no
//! compression.
//!
//! | module          | concern                                                    |
//! |-----------------|------------------------------------------------------------|
//! | [`class`]       | why an answer may be kept                                  |
//! | [`chain`]       | what is known of a chain, and which answers hold           |
//! | [`freshness`]   | for how long a JSON-RPC answer may be kept                 |
//! | [`http`]        | what a head says of that (RFC 9111)                        |
//! | [`stale`]       | when an expired answer may be sent                         |
//! | [`scope`]       | what tells answers apart                                   |
//! | [`credentials`] | what fields that say who asks mean to it                   |
//! | [`resource`]    | what a resource is stored under, in each of its formats    |
//! | [`status`]      | what the cache had to do with an answer                    |
//! | [`reason`]      | and why no more                                            |
//! | [`entry`]       | one answer, and its forms: in batches, as bytes, smaller   |
//! | [`process`]     | what the exchanges of a process share                      |
//! | [`link`]        | a process's connections to the owner of a store            |
//! | [`told`]        | what the owner tells processes                             |
//! | `owner`         | the rules of the process that has it (feature `store`)     |
//! | `store`         | entries on disk (feature `store`)                          |
//!
//! Nothing of that reads a clock or waits, but for `store`, which may wait for the
//! disk: times are arguments, and who is to wake up is a result.

/// An enum, each of its variants with its name.
macro_rules! named {
    ($(#[$attribute:meta])* $name:ident $($(#[$doc:meta])* $variant:ident $text:literal,)*) => {
        $(#[$attribute])*
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// As logs and other programs are told; empty where there is nothing
            /// to tell.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

pub mod chain;
pub mod class;
pub mod credentials;
pub mod entry;
pub mod freshness;
pub mod http;
pub mod link;
#[cfg(feature = "store")]
pub mod owner;
pub mod process;
pub mod reason;
pub mod resource;
pub mod scope;
pub mod stale;
pub mod status;
#[cfg(feature = "store")]
pub mod store;
pub mod tip_floor;
pub mod told;

/// A cryptographic hash of all that an answer depends on.
pub type Key = [u8; 32];

/// What answers of one chain, from one place, have in common: the first half of
/// the BLAKE3 hash of what it is made of.
pub type Namespace = [u8; 16];
