//! Fields of requests that say who asks, and what they mean to the cache.

use std::fmt;

use Means::{Bypass, Ignore, Key};

/// What a field that says who asks means to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Such a request goes to the node and its answer is not stored.
    Bypass,
    /// It does not matter to the answer.
    Ignore,
    /// Answers are kept for each of its values.
    Key,
}

impl Means {
    /// What operators call it.
    pub const NAMES: &'static [&'static str] = &["bypass", "ignore", "key"];

    /// What is called so.
    pub fn named(name: &[u8]) -> Option<Self> {
        let at = Self::NAMES
            .iter()
            .position(|known| known.as_bytes() == name);
        at.map(|at| [Bypass, Ignore, Key][at])
    }
}

/// Fields that say who asks wherever they are, and mean [`Bypass`] until an operator has
/// said more.
const ALWAYS: [&str; 2] = ["authorization", "cookie"];

/// What an operator has said of fields that say who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// In lower case, and in the order of the alphabet.
    said: Vec<(Box<str>, Means)>,
}

/// Why something was not taken that an operator says of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// It is no name of a field.
    Name,
    /// Something was said of it already.
    Twice,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NameError::Name => "the name of a request field, as \"X-Api-Key\"",
            NameError::Twice => "a field of which nothing was said here yet",
        })
    }
}

impl std::error::Error for NameError {}

impl Credentials {
    /// What a field means.
    ///
    /// # Errors
    /// [`NameError`]; nothing is changed then.
    pub fn say(&mut self, name: &[u8], means: Means) -> Result<(), NameError> {
        // a word in the wrong place is no field that anybody has
        if name.is_empty() || !name.iter().all(is_of_name) || Means::named(name).is_some() {
            return Err(NameError::Name);
        }
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        match self
            .said
            .binary_search_by(|(known, _)| (**known).cmp(&name))
        {
            Ok(_) => Err(NameError::Twice),
            Err(at) => {
                self.said.insert(at, (name.into(), means));
                Ok(())
            }
        }
    }

    /// The same of those that say who asks wherever they are.
    ///
    /// # Errors
    /// As of [`say`](Self::say).
    pub fn say_of_usual(&mut self, means: Means) -> Result<(), NameError> {
        let mut all = self.clone();
        for name in ALWAYS {
            all.say(name.as_bytes(), means)?;
        }
        *self = all;
        Ok(())
    }

    /// Whether a request with a field of that name is none for the cache.
    pub fn bypasses(&self, name: &[u8]) -> bool {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match self.said.iter().find(|(known, _)| is(known)) {
            Some((_, means)) => *means == Bypass,
            None => ALWAYS.iter().any(|known| is(known)),
        }
    }

    /// The fields that keep answers apart, in lower case and in order.
    pub fn keyed(&self) -> impl Iterator<Item = &str> + Clone {
        let keyed = self.said.iter().filter(|(_, means)| *means == Key);
        keyed.map(|(name, _)| &**name)
    }
}

/// RFC 9110, 5.6.2.
fn is_of_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

#[cfg(test)]
mod tests {
    use super::{Credentials, Means, NameError};

    fn keyed(credentials: &Credentials) -> Vec<&str> {
        credentials.keyed().collect()
    }

    #[test]
    fn what_nobody_has_spoken_of_goes_past() {
        let mut said = Credentials::default();
        assert!(said.bypasses(b"Authorization") && said.bypasses(b"COOKIE"));
        assert!(!said.bypasses(b"X-Api-Key") && !said.bypasses(b"Author"));
        said.say(b"X-Api-Key", Means::Key).unwrap();
        assert!(said.bypasses(b"authorization") && !said.bypasses(b"X-API-KEY"));
        assert_eq!(keyed(&said), ["x-api-key"]);
    }

    #[test]
    fn each_field_means_one_thing() {
        let mut said = Credentials::default();
        said.say(b"X-Api-Key", Means::Key).unwrap();
        said.say(b"Cookie", Means::Ignore).unwrap();
        said.say(b"X-Internal", Means::Bypass).unwrap();
        said.say(b"Authorization", Means::Key).unwrap();
        assert_eq!(keyed(&said), ["authorization", "x-api-key"]);
        assert!(!said.bypasses(b"cookie") && said.bypasses(b"x-internal"));
        let before = said.clone();
        assert_eq!(said.say(b"x-api-KEY", Means::Ignore), Err(NameError::Twice));
        assert_eq!(said.say_of_usual(Means::Key), Err(NameError::Twice));
        assert_eq!(said, before);
    }

    #[test]
    fn without_names_it_is_about_the_usual_ones() {
        let mut said = Credentials::default();
        said.say_of_usual(Means::Ignore).unwrap();
        assert!(!said.bypasses(b"authorization") && !said.bypasses(b"cookie"));
        let mut said = Credentials::default();
        said.say_of_usual(Means::Key).unwrap();
        assert_eq!(keyed(&said), ["authorization", "cookie"]);
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in ["", "a b", "a:b", "\u{e9}", "a\"", "key", "bypass"] {
            let said = Credentials::default().say(name.as_bytes(), Means::Key);
            assert_eq!(said, Err(NameError::Name), "{name}");
        }
    }
}
