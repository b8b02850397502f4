//! ethereum_ssz 0.10 with ssz_types 0.14 and tree_hash 0.12, the crates of Lighthouse.

use serde::{Deserialize, Serialize, Serializer};
use ssz::Decode;
use ssz_types::typenum::{Shleft, Unsigned, U, U1};
use ssz_types::{BitList, BitVector, FixedVector, VariableList};
use tree_hash::TreeHash;

use super::{PeerJsonFunctions, PeerSszCodec, PeerTypeCodec};
use crate::json::{self, hex, hexes, itself, list, uint, uint256, uints, HexConvertible};

type List<T, N> = VariableList<T, N>;
type Vector<T, N> = FixedVector<T, N>;
type ByteList<N> = VariableList<u8, N>;
type Bitlist<N> = BitList<N>;
type Bitvector<N> = BitVector<N>;
type Bytes4 = [u8; 4];
type Bytes20 = [u8; 20];
type Bytes32 = [u8; 32];
type Bytes48 = [u8; 48];
type Bytes96 = [u8; 96];
type Bytes256 = [u8; 256];
type Uint256Conversion = ruint::aliases::U256;

#[allow(non_camel_case_types)]
type DEPOSIT_PROOF_LENGTH = U<{ super::DEPOSIT_PROOF_LENGTH }>;

macro_rules! constants {
    ($($name:ident = $power:literal,)*) => {
        $(
            #[allow(non_camel_case_types)]
            type $name = Shleft<U1, U<$power>>;
        )*
    };
}

macro_rules! structs {
    ($($name:ident { $($field:ident: $ty:ty = $json:literal,)* })*) => {
        $(
            #[allow(missing_docs)]
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            #[derive(ssz_derive::Encode, ssz_derive::Decode)]
            #[derive(tree_hash_derive::TreeHash)]
            pub struct $name {
                $(#[serde(with = $json)] pub $field: $ty,)*
            }

            impl PeerSszCodec for $name {
                fn decode_ssz(ssz: &[u8]) -> Result<Self, String> {
                    Self::from_ssz_bytes(ssz).map_err(|error| format!("{error:?}"))
                }

                fn encode_ssz(&self) -> Vec<u8> {
                    ssz::Encode::as_ssz_bytes(self)
                }

                fn hash_root(&mut self) -> [u8; 32] {
                    self.tree_hash_root().0
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

impl<N: Unsigned> HexConvertible for VariableList<u8, N> {
    fn from_hex_digits(digits: &str) -> Option<Self> {
        Self::new(const_hex::decode(digits).ok()?).ok()
    }

    fn serialize_hex_text<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json::write_hex(self, serializer)
    }
}

macro_rules! bits {
    ($ty:ident) => {
        impl<N: Unsigned + Clone> HexConvertible for $ty<N> {
            fn from_hex_digits(digits: &str) -> Option<Self> {
                Self::from_ssz_bytes(&const_hex::decode(digits).ok()?).ok()
            }

            fn serialize_hex_text<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                json::write_hex(&ssz::Encode::as_ssz_bytes(self), serializer)
            }
        }
    };
}

bits!(BitList);
bits!(BitVector);
