//! RLP (Ethereum yellow paper, appendix B) of execution witnesses and transactions.

mod blobs;
mod header;
mod prefix;

pub use self::blobs::transaction_blob_hashes;
pub(super) use self::header::encode_block_header as encode_header;
pub(super) use self::prefix::{
    read_rlp_prefix, rlp_string_prefix, write_rlp_prefix, RlpPrefix, MAX_RLP_PREFIX,
};
