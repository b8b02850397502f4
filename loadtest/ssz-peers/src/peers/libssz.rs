//! libssz 0.3.

use libssz_merkle::Sha2Hasher;
use libssz_types::{SszBitlist, SszBitvector, SszList, SszVector};
use serde::{Deserialize, Serialize, Serializer};

use super::{PeerJsonFunctions, PeerSszCodec, PeerTypeCodec, DEPOSIT_PROOF_LENGTH};
use crate::json::{self, hex, hexes, itself, list, uint, uint256, uints, HexConvertible};

type List<T, const N: usize> = SszList<T, N>;
type Vector<T, const N: usize> = SszVector<T, N>;
type ByteList<const N: usize> = SszList<u8, N>;
type Bitlist<const N: usize> = SszBitlist<N>;
type Bitvector<const N: usize> = SszBitvector<N>;
type Bytes4 = [u8; 4];
type Bytes20 = [u8; 20];
type Bytes32 = [u8; 32];
type Bytes48 = [u8; 48];
type Bytes96 = [u8; 96];
type Bytes256 = [u8; 256];
/// The crate has 256-bit numbers only through ethereum_types; little-endian, the array has the
/// same bytes and root.
type Uint256Conversion = [u8; 32];

macro_rules! constants {
    ($($name:ident = $power:literal,)*) => {
        $(const $name: usize = 1 << $power;)*
    };
}

macro_rules! structs {
    ($($name:ident { $($field:ident: $ty:ty = $json:literal,)* })*) => {
        $(
            #[allow(missing_docs)]
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            #[derive(libssz_derive::SszEncode, libssz_derive::SszDecode)]
            #[derive(libssz_derive::HashTreeRoot)]
            pub struct $name {
                $(#[serde(with = $json)] pub $field: $ty,)*
            }

            impl PeerSszCodec for $name {
                fn decode_ssz(ssz: &[u8]) -> Result<Self, String> {
                    libssz::SszDecode::from_ssz_bytes(ssz).map_err(|error| format!("{error:?}"))
                }

                fn encode_ssz(&self) -> Vec<u8> {
                    libssz::SszEncode::to_ssz(self)
                }

                fn hash_root(&mut self) -> [u8; 32] {
                    libssz_merkle::HashTreeRoot::hash_tree_root(self, &Sha2Hasher)
                }
            }
        )*

        pub(super) fn codecs() -> &'static [PeerTypeCodec] {
            const { &[$(PeerTypeCodec::for_type::<$name>(stringify!($name), Some(PeerJsonFunctions::for_type::<$name>())),)*] }
        }
    };
}

limits!(constants);
containers!(structs);

impl<const N: usize> HexConvertible for SszList<u8, N> {
    fn from_hex_digits(digits: &str) -> Option<Self> {
        const_hex::decode(digits).ok()?.try_into().ok()
    }

    fn serialize_hex_text<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json::write_hex(self, serializer)
    }
}

macro_rules! bits {
    ($ty:ident) => {
        impl<const N: usize> HexConvertible for $ty<N> {
            fn from_hex_digits(digits: &str) -> Option<Self> {
                libssz::SszDecode::from_ssz_bytes(&const_hex::decode(digits).ok()?).ok()
            }

            fn serialize_hex_text<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                json::write_hex(&libssz::SszEncode::to_ssz(self), serializer)
            }
        }
    };
}

bits!(SszBitlist);
bits!(SszBitvector);
