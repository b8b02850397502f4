//! The Beacon API's JSON notation for serde: text is parsed directly into the collection of the
//! value, hex by SIMD (const-hex), as in a fast client.

use std::ops::Deref;
use std::str::FromStr;

/// A type whose JSON is hex digits after `0x`.
pub trait HexConvertible: Sized {
    /// Decodes hex `digits` without `0x`.
    fn from_hex_digits(digits: &str) -> Option<Self>;

    /// Passes the hex text to the serializer.
    fn serialize_hex_text<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
}

/// A list or vector with a limit or a fixed length.
pub trait BoundedCollection: Sized {
    /// The type of an element.
    type Item;

    /// Builds the collection, or returns `None` for a number of elements that the type does not
    /// allow.
    fn from_items(items: Vec<Self::Item>) -> Option<Self>;

    /// Returns the elements.
    fn as_elements(&self) -> &[Self::Item];
}

impl<C, T> BoundedCollection for C
where
    C: TryFrom<Vec<T>> + Deref<Target = [T]>,
{
    type Item = T;

    fn from_items(items: Vec<T>) -> Option<Self> {
        items.try_into().ok()
    }

    fn as_elements(&self) -> &[T] {
        self
    }
}

impl<const N: usize> HexConvertible for [u8; N] {
    fn from_hex_digits(digits: &str) -> Option<Self> {
        const_hex::decode_to_array(digits).ok()
    }

    fn serialize_hex_text<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(const_hex::Buffer::<N, true>::new().format(self))
    }
}

/// Serializes any number of bytes as hex.
pub fn write_hex<S: serde::Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&const_hex::encode_prefixed(bytes))
}

/// Bytes and bits as hex.
pub mod hex {
    use std::fmt;
    use std::marker::PhantomData;

    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    use super::HexConvertible;

    /// A serde visitor that decodes hex digits after `0x`.
    struct HexDigitsVisitor<T>(PhantomData<T>);

    impl<T: HexConvertible> Visitor<'_> for HexDigitsVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("hex after 0x")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            text.strip_prefix("0x")
                .and_then(T::from_hex_digits)
                .ok_or_else(|| E::custom("expected 0x and the hexadecimal digits of the bytes"))
        }
    }

    /// Serializes one value.
    pub fn serialize<T: HexConvertible, S: Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        value.serialize_hex_text(to)
    }

    /// Deserializes one value.
    pub fn deserialize<'de, T: HexConvertible, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        from.deserialize_str(HexDigitsVisitor(PhantomData))
    }
}

/// Numbers of up to 64 bits as decimal strings.
pub mod uint {
    use std::fmt;
    use std::marker::PhantomData;

    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    use super::SmallUnsignedInteger;

    /// A serde visitor that parses a decimal number in a string.
    struct DecimalVisitor<T>(PhantomData<T>);

    impl<T: SmallUnsignedInteger> Visitor<'_> for DecimalVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number as a string")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            text.parse()
                .map_err(|_| E::custom("expected a decimal number in its type's range"))
        }
    }

    /// Serializes one value.
    pub fn serialize<T: SmallUnsignedInteger, S: Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(itoa::Buffer::new().format(*value))
    }

    /// Deserializes one value.
    pub fn deserialize<'de, T: SmallUnsignedInteger, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        from.deserialize_str(DecimalVisitor(PhantomData))
    }
}

/// Numbers of 256 bits as decimal strings.
pub mod uint256 {
    use std::borrow::Cow;

    use ruint::aliases::U256;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    /// A 256-bit number of any crate.
    pub trait Uint256Conversion {
        /// Converts a number to the type.
        fn from_u256(number: U256) -> Self;

        /// Converts the value to a number.
        fn to_u256(&self) -> U256;
    }

    impl Uint256Conversion for U256 {
        fn from_u256(number: U256) -> Self {
            number
        }

        fn to_u256(&self) -> U256 {
            *self
        }
    }

    /// Little-endian bytes, as in SSZ.
    impl Uint256Conversion for [u8; 32] {
        fn from_u256(number: U256) -> Self {
            number.to_le_bytes()
        }

        fn to_u256(&self) -> U256 {
            U256::from_le_bytes(*self)
        }
    }

    /// Serializes one value.
    pub fn serialize<T: Uint256Conversion, S: Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&value.to_u256().to_string())
    }

    /// Deserializes one value.
    pub fn deserialize<'de, T: Uint256Conversion, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        U256::from_str_radix(&text, 10)
            .map(T::from_u256)
            .map_err(D::Error::custom)
    }
}

macro_rules! collections {
    ($(#[$doc:meta])* $name:ident of $element:ident: $read:path, $write:path) => {
        $(#[$doc])*
        pub mod $name {
            use std::fmt;
            use std::marker::PhantomData;

            use serde::de::{Error, SeqAccess, Visitor};
            use serde::{Deserialize, Deserializer, Serialize, Serializer};

            use super::{$element, BoundedCollection};

            /// An element that is read with the functions of another module.
            struct DeserializedElement<T>(T);

            impl<'de, T: $read> Deserialize<'de> for DeserializedElement<T> {
                fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                    $element::deserialize(from).map(Self)
                }
            }

            /// An element that is written with the functions of another module.
            struct SerializedElement<'t, T>(&'t T);

            impl<T: $write> Serialize for SerializedElement<'_, T> {
                fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                    $element::serialize(self.0, to)
                }
            }

            /// A serde visitor that collects the elements of an array; a number of elements that the
            /// collection does not permit is an error.
            struct BoundedCollectionVisitor<C>(PhantomData<C>);

            impl<'de, C: BoundedCollection<Item: $read>> Visitor<'de> for BoundedCollectionVisitor<C> {
                type Value = C;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("an array")
                }

                fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<C, A::Error> {
                    let mut items = Vec::new();
                    while let Some(DeserializedElement(item)) = from.next_element()? {
                        items.push(item);
                    }
                    C::from_items(items).ok_or_else(|| A::Error::custom("wrong number of items"))
                }
            }

            /// Serializes a collection.
            pub fn serialize<C: BoundedCollection<Item: $write>, S: Serializer>(
                value: &C,
                to: S,
            ) -> Result<S::Ok, S::Error> {
                to.collect_seq(value.as_elements().iter().map(SerializedElement))
            }

            /// Deserializes a collection.
            pub fn deserialize<'de, C: BoundedCollection<Item: $read>, D: Deserializer<'de>>(
                from: D,
            ) -> Result<C, D::Error> {
                from.deserialize_seq(BoundedCollectionVisitor(PhantomData))
            }
        }
    };
}

/// An unsigned integer of up to 64 bits.
pub trait SmallUnsignedInteger: FromStr + itoa::Integer + Copy {}

impl SmallUnsignedInteger for u8 {}
impl SmallUnsignedInteger for u64 {}

collections! {
    /// Arrays of hex values.
    hexes of hex: crate::json::HexConvertible, crate::json::HexConvertible
}
collections! {
    /// Arrays of numbers.
    uints of uint: crate::json::SmallUnsignedInteger, crate::json::SmallUnsignedInteger
}
collections! {
    /// Arrays of containers.
    list of itself: serde::de::DeserializeOwned, serde::Serialize
}

/// Containers as elements of containers.
pub mod itself {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Serializes one value.
    pub fn serialize<T: Serialize, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        value.serialize(to)
    }

    /// Deserializes one value.
    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        T::deserialize(from)
    }
}
