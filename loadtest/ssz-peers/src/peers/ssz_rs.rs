//! ssz_rs 0.9, without JSON: its JSON is not optimized for speed.

use ssz_rs::prelude::*;

use super::{PeerSszCodec, PeerTypeCodec, DEPOSIT_PROOF_LENGTH};

type ByteList<const N: usize> = List<u8, N>;
type Bytes4 = [u8; 4];
type Bytes20 = [u8; 20];
type Bytes32 = [u8; 32];
// The crate supports arrays of up to 32 bytes.
type Bytes48 = Vector<u8, 48>;
type Bytes96 = Vector<u8, 96>;
type Bytes256 = Vector<u8, 256>;
type Uint256Conversion = U256;

macro_rules! constants {
    ($($name:ident = $power:literal,)*) => {
        $(const $name: usize = 1 << $power;)*
    };
}

macro_rules! structs {
    ($($name:ident { $($field:ident: $ty:ty = $json:literal,)* })*) => {
        $(
            #[allow(missing_docs)]
            #[derive(Clone, Debug, Default, PartialEq, Eq, SimpleSerialize)]
            pub struct $name {
                $(pub $field: $ty,)*
            }

            impl PeerSszCodec for $name {
                fn decode_ssz(ssz: &[u8]) -> Result<Self, String> {
                    deserialize(ssz).map_err(|error| format!("{error:?}"))
                }

                #[allow(clippy::expect_used)]
                fn encode_ssz(&self) -> Vec<u8> {
                    serialize(self).expect("a value in its limits")
                }

                #[allow(clippy::expect_used)]
                fn hash_root(&mut self) -> [u8; 32] {
                    let root = self.hash_tree_root().expect("a value in its limits");
                    root.as_ref().try_into().expect("a root has 32 bytes")
                }
            }
        )*

        pub(super) fn codecs() -> &'static [PeerTypeCodec] {
            const { &[$(PeerTypeCodec::for_type::<$name>(stringify!($name), None),)*] }
        }
    };
}

limits!(constants);
containers!(structs);
