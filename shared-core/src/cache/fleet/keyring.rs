//! Key files of the fleet: the names of values, and the tags of values and purge records.
//!
//! A tag is a BLAKE3 hash with a secret key, which is derived from the content of a key file.
//! Without a key file it is a checksum, which detects damage only. Values and records have keys and
//! contexts of their own, so that neither is accepted as the other.

use std::fmt;
use std::ops::RangeInclusive;

use blake3::{Hash, Hasher, OUT_LEN};

use crate::cache::CacheKey;

/// Permitted lengths of a key file in bytes.
const KEY_FILE_LENGTHS: RangeInclusive<usize> = 32..=4096;

/// Maximum number of key files: the present one, and the one that it replaces.
const MAX_KEY_FILES: usize = 2;

/// Length of the tag of a value in bytes.
pub const VALUE_TAG_LENGTH: usize = OUT_LEN;

/// Length of the tag of a purge record in bytes.
pub const RECORD_TAG_LENGTH: usize = 16;

/// Number of bytes of a hash that are in a value's name.
const NAME_HASH_LENGTH: usize = 16;

/// Contexts of BLAKE3's key derivation. Each of them ends with the version of its format.
const NAME_CONTEXT: &str = "sszip fleet name 1";
const VALUE_KEY_CONTEXT: &str = "sszip fleet value key 1";
const RECORD_KEY_CONTEXT: &str = "sszip fleet record key 1";
const VALUE_CHECKSUM_CONTEXT: &str = "sszip fleet value checksum 1";
const RECORD_CHECKSUM_CONTEXT: &str = "sszip fleet record checksum 1";

/// The secret keys that are derived from one key file.
struct DerivedKeys {
    value: [u8; OUT_LEN],
    record: [u8; OUT_LEN],
}

/// The keys with which an owner writes and reads values and purge records. The first key file
/// writes, and all of them read, so that a key can be replaced machine by machine.
pub struct FleetKeyring {
    /// Keys of the key files; empty without a key file.
    file_keys: Vec<DerivedKeys>,
}

impl FleetKeyring {
    /// Creates a keyring without a secret, whose tags are checksums.
    pub fn unkeyed() -> Self {
        Self {
            file_keys: Vec::new(),
        }
    }

    /// Creates a keyring of the contents of one or two key files. White space at the end of a text
    /// file is ignored, as editors add it.
    ///
    /// # Errors
    /// Returns the problem for operators if a file is too short or too long, or if the number of
    /// files or their contents are wrong.
    pub fn from_key_files(contents: &[Vec<u8>]) -> Result<Self, String> {
        if contents.is_empty() || contents.len() > MAX_KEY_FILES {
            return Err(format!(
                "needs one or two key files, and has {}",
                contents.len()
            ));
        }
        let secrets: Vec<&[u8]> = contents
            .iter()
            .map(|content| secret_of_key_file(content))
            .collect::<Result<_, _>>()?;
        if let [first, second] = secrets[..] {
            if first == second {
                return Err("has two key files with the same content; remove one of them".into());
            }
        }
        let file_keys = secrets.into_iter().map(|secret| DerivedKeys {
            value: blake3::derive_key(VALUE_KEY_CONTEXT, secret),
            record: blake3::derive_key(RECORD_KEY_CONTEXT, secret),
        });
        Ok(Self {
            file_keys: file_keys.collect(),
        })
    }

    /// Whether the tags prove that the writer has a key file.
    pub fn is_keyed(&self) -> bool {
        !self.file_keys.is_empty()
    }

    /// Returns the name of the value of a cache key: `<prefix>:1:<32 hex digits>`. It does not
    /// depend on the key files: machines with different ones overwrite and reject each other's
    /// values, which is counted and logged, in place of missing them in silence; and a key file
    /// can be replaced without a cold fleet.
    pub fn value_name(&self, prefix: &str, key: &CacheKey) -> Vec<u8> {
        let hash = blake3::derive_key(NAME_CONTEXT, key);
        let digits = const_hex::encode(&hash[..NAME_HASH_LENGTH]);
        (Self::value_prefix(prefix) + &digits).into_bytes()
    }

    /// Returns the beginning of the names of values, which is followed by 32 hex digits.
    pub fn value_prefix(prefix: &str) -> String {
        format!("{prefix}:1:")
    }

    /// Returns the tag of a value with this content.
    pub fn value_tag(&self, content: &[u8]) -> [u8; VALUE_TAG_LENGTH] {
        hash_value(self.file_keys.first(), content).into()
    }

    /// Whether the tag is the tag of a value with this content, under any of the key files.
    pub(super) fn verifies_value(&self, tag: &[u8; VALUE_TAG_LENGTH], content: &[u8]) -> bool {
        // hashes are compared in constant time
        self.reading_keys()
            .any(|keys| hash_value(keys, content) == *tag)
    }

    /// Returns the tag of a purge record that consists of `parts`.
    pub fn record_tag(&self, parts: &[&[u8]]) -> [u8; RECORD_TAG_LENGTH] {
        let hash = hash_record(self.file_keys.first(), parts);
        let mut tag = [0; RECORD_TAG_LENGTH];
        tag.copy_from_slice(&hash.as_bytes()[..RECORD_TAG_LENGTH]);
        tag
    }

    /// Whether the tag is the tag of a purge record that consists of `parts`, under any of the key
    /// files.
    pub fn verifies_record(&self, tag: &[u8], parts: &[&[u8]]) -> bool {
        if tag.len() != RECORD_TAG_LENGTH {
            return false;
        }
        self.reading_keys().any(|keys| {
            let hash = hash_record(keys, parts);
            // the rest of the hash, so that whole hashes are compared, in constant time
            let mut expected = *hash.as_bytes();
            expected[..RECORD_TAG_LENGTH].copy_from_slice(tag);
            hash == expected
        })
    }

    /// Returns the keys of all key files, or `None` once for a checksum.
    fn reading_keys(&self) -> impl Iterator<Item = Option<&DerivedKeys>> {
        let checksum = (!self.is_keyed()).then_some(None);
        checksum.into_iter().chain(self.file_keys.iter().map(Some))
    }
}

impl fmt::Debug for FleetKeyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetKeyring")
            .field("key_files", &self.file_keys.len())
            .finish_non_exhaustive()
    }
}

/// Returns the part of a key file that is secret.
fn secret_of_key_file(content: &[u8]) -> Result<&[u8], String> {
    // the last byte of a binary key may be a space as well
    let secret = match content.is_ascii() {
        true => content.trim_ascii_end(),
        false => content,
    };
    match KEY_FILE_LENGTHS.contains(&secret.len()) {
        true => Ok(secret),
        false => Err(format!(
            "must have {} to {} bytes without white space at its end, and has {}",
            KEY_FILE_LENGTHS.start(),
            KEY_FILE_LENGTHS.end(),
            secret.len()
        )),
    }
}

fn hash_value(keys: Option<&DerivedKeys>, content: &[u8]) -> Hash {
    let mut hasher = match keys {
        Some(keys) => Hasher::new_keyed(&keys.value),
        None => Hasher::new_derive_key(VALUE_CHECKSUM_CONTEXT),
    };
    hasher.update(content).finalize()
}

fn hash_record(keys: Option<&DerivedKeys>, parts: &[&[u8]]) -> Hash {
    let mut hasher = match keys {
        Some(keys) => Hasher::new_keyed(&keys.record),
        None => Hasher::new_derive_key(RECORD_CHECKSUM_CONTEXT),
    };
    for part in parts {
        // with its length: no other parts have the same bytes
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyring(secrets: &[u8]) -> FleetKeyring {
        let files: Vec<_> = secrets.iter().map(|secret| vec![*secret; 32]).collect();
        FleetKeyring::from_key_files(&files).unwrap()
    }

    #[test]
    fn key_files_are_accepted_by_their_length() {
        let problem = |content: &[u8]| FleetKeyring::from_key_files(&[content.to_vec()]).err();
        for (length, is_valid) in [
            (0, false),
            (31, false),
            (32, true),
            (4096, true),
            (4097, false),
        ] {
            for byte in [b'k', 0xff] {
                let content = vec![byte; length];
                let problem = problem(&content);
                assert_eq!(problem.is_none(), is_valid, "{length} {problem:?}");
            }
        }
        let text = problem(&[b'k'; 31]).unwrap();
        assert!(text.contains("32 to 4096 bytes") && text.contains("has 31"));
        // a file of white space has no secret
        assert!(problem(&[b' '; 100]).is_some());
    }

    #[test]
    fn number_of_key_files_is_one_or_two_different_ones() {
        let result = |secrets: &[u8]| {
            let files: Vec<_> = secrets.iter().map(|secret| vec![*secret; 32]).collect();
            FleetKeyring::from_key_files(&files)
        };
        assert!(result(b"a").is_ok() && result(b"ab").is_ok());
        assert!(result(b"").is_err() && result(b"abc").is_err());
        assert!(result(b"aa").unwrap_err().contains("same content"));
    }

    #[test]
    fn white_space_at_the_end_of_a_text_key_is_ignored() {
        let tag = |content: &[u8]| {
            let keyring = FleetKeyring::from_key_files(&[content.to_vec()]).unwrap();
            keyring.value_tag(b"x")
        };
        let text = [b'k'; 40];
        assert_eq!(tag(&text), tag(&[&text[..], b"\r\n"].concat()));
        assert_ne!(tag(&text), tag(&[&b"\n"[..], &text].concat()));
        let binary = [0xfe; 40];
        assert_ne!(tag(&binary), tag(&[&binary[..], b"\n"].concat()));
    }

    #[test]
    fn value_name_depends_on_prefix_and_key_alone() {
        let unkeyed = FleetKeyring::unkeyed();
        let name = |prefix: &str, key: u8| {
            String::from_utf8(unkeyed.value_name(prefix, &[key; 32])).unwrap()
        };
        let first = name("sszip", 1);
        let digits = first.strip_prefix("sszip:1:").unwrap();
        let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        assert!(digits.len() == 32 && digits.bytes().all(is_digit));
        assert_ne!(first, name("sszip", 2));
        assert_eq!(name("other", 1), format!("other:1:{digits}"));
        let keyed = keyring(b"a").value_name("sszip", &[1; 32]);
        assert_eq!(keyed, first.into_bytes());
    }

    #[test]
    fn tags_are_verified_only_with_a_key_of_the_writer() {
        let keyrings = [
            FleetKeyring::unkeyed(),
            keyring(b"a"),
            keyring(b"b"),
            keyring(b"ab"),
            keyring(b"ba"),
            keyring(b"cd"),
        ];
        // the key that writes, and those that read
        let keys: [(&str, &[&str]); 6] = [
            ("", &[""]),
            ("a", &["a"]),
            ("b", &["b"]),
            ("a", &["a", "b"]),
            ("b", &["a", "b"]),
            ("c", &["c", "d"]),
        ];
        for (writer, (writes, _)) in keyrings.iter().zip(keys) {
            for (reader, (_, reads)) in keyrings.iter().zip(keys) {
                let expected = reads.contains(&writes);
                let tag = writer.value_tag(b"content");
                let context = format!("{writes} {reads:?}");
                assert_eq!(
                    reader.verifies_value(&tag, b"content"),
                    expected,
                    "{context}"
                );
                assert!(!reader.verifies_value(&tag, b"contenu"), "{context}");
                let parts: [&[u8]; 2] = [b"con", b"tent"];
                let tag = writer.record_tag(&parts);
                assert_eq!(reader.verifies_record(&tag, &parts), expected, "{context}");
            }
        }
    }

    #[test]
    fn record_tag_depends_on_each_bit_and_on_the_bounds_of_parts() {
        for keyring in [FleetKeyring::unkeyed(), keyring(b"a")] {
            let tag = keyring.record_tag(&[b"ab", b"c"]);
            let others: [&[&[u8]]; 5] = [
                &[b"abc"],
                &[b"a", b"bc"],
                &[b"ab", b"c", b""],
                &[b"ab"],
                &[b"c", b"ab"],
            ];
            for parts in others {
                assert!(!keyring.verifies_record(&tag, parts), "{parts:?}");
            }
            for at in 0..RECORD_TAG_LENGTH * 8 {
                let mut damaged = tag;
                damaged[at / 8] ^= 1 << (at % 8);
                assert!(!keyring.verifies_record(&damaged, &[b"ab", b"c"]), "{at}");
            }
            for length in 0..RECORD_TAG_LENGTH {
                assert!(!keyring.verifies_record(&tag[..length], &[b"ab", b"c"]));
            }
            let longer = [&tag[..], &[0]].concat();
            assert!(!keyring.verifies_record(&longer, &[b"ab", b"c"]));
            // no tag of a value is one of a record
            let value_tag = keyring.value_tag(b"");
            assert!(!keyring.verifies_record(&value_tag[..RECORD_TAG_LENGTH], &[]));
        }
    }

    #[test]
    fn debug_output_of_a_keyring_has_no_key() {
        let text = format!("{:?}", keyring(b"ab"));
        assert_eq!(text, "FleetKeyring { key_files: 2, .. }");
    }
}
