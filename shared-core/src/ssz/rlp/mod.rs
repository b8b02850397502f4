//! RLP (Ethereum yellow paper, appendix B) of execution witnesses and transactions.

mod blobs;
mod header;
mod prefix;

pub use self::blobs::blob_hashes;
pub(super) use self::header::encode as encode_header;
pub(super) use self::prefix::{rlp_header, string_prefix, write_prefix, RlpHeader, MAX_PREFIX};
