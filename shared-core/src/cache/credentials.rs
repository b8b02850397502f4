//! Credentials: request headers that identify the caller, and their effect on the cache.

use std::fmt;

use CredentialsPolicy::{Bypass, Ignore, Key};

/// The effect on the cache of one header that identifies the caller: bypass, ignore, or a part of
/// the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialsPolicy {
    /// The request bypasses the cache: it is forwarded, and its response is not stored.
    Bypass,
    /// The response does not depend on the header.
    Ignore,
    /// Responses are stored for each value of the header.
    Key,
}

impl CredentialsPolicy {
    /// Names of the policies in the configuration.
    pub const NAMES: &'static [&'static str] = &["bypass", "ignore", "key"];

    /// Returns the policy with this name in the configuration, or `None` if there is none.
    pub fn from_policy_name(name: &[u8]) -> Option<Self> {
        let at = Self::NAMES
            .iter()
            .position(|known| known.as_bytes() == name);
        at.map(|at| [Bypass, Ignore, Key][at])
    }
}

/// Headers that identify the caller everywhere, with the policy `bypass` until an operator sets
/// another one.
const DEFAULT_CREDENTIALS: [&str; 2] = ["authorization", "cookie"];

/// The request headers that identify the caller, each with the policy that an operator has set for
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialsPolicies {
    /// Names in lower case and in alphabetical order, with their policies.
    policies: Vec<(Box<str>, CredentialsPolicy)>,
}

/// The reason why an operator cannot set a credentials policy for a header: its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialsHeaderNameError {
    /// The name is no header name.
    Name,
    /// The header has a policy already.
    Duplicate,
}

impl fmt::Display for CredentialsHeaderNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CredentialsHeaderNameError::Name => {
                "the name of a request header, such as \"X-Api-Key\""
            }
            CredentialsHeaderNameError::Duplicate => {
                "a header that this block does not configure yet"
            }
        })
    }
}

impl std::error::Error for CredentialsHeaderNameError {}

impl CredentialsPolicies {
    /// Sets the policy of one header, whose name is compared without regard to case.
    ///
    /// # Errors
    /// Returns a [`CredentialsHeaderNameError`] and changes nothing.
    pub fn set_credentials_policy(
        &mut self,
        name: &[u8],
        policy: CredentialsPolicy,
    ) -> Result<(), CredentialsHeaderNameError> {
        // a policy in place of a name is a mistake, and no client's header
        if name.is_empty()
            || !name.iter().all(is_header_name_byte)
            || CredentialsPolicy::from_policy_name(name).is_some()
        {
            return Err(CredentialsHeaderNameError::Name);
        }
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        match self
            .policies
            .binary_search_by(|(known, _)| (**known).cmp(&name))
        {
            Ok(_) => Err(CredentialsHeaderNameError::Duplicate),
            Err(at) => {
                self.policies.insert(at, (name.into(), policy));
                Ok(())
            }
        }
    }

    /// Sets the policy of the headers that identify the caller everywhere.
    ///
    /// # Errors
    /// Returns the errors of [`set_credentials_policy`](Self::set_credentials_policy).
    pub fn set_default_credentials_policy(
        &mut self,
        policy: CredentialsPolicy,
    ) -> Result<(), CredentialsHeaderNameError> {
        let mut all = self.clone();
        for name in DEFAULT_CREDENTIALS {
            all.set_credentials_policy(name.as_bytes(), policy)?;
        }
        *self = all;
        Ok(())
    }

    /// Whether a request with a header of that name bypasses the cache.
    pub fn header_causes_bypass(&self, name: &[u8]) -> bool {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match self.policies.iter().find(|(known, _)| is(known)) {
            Some((_, policy)) => *policy == Bypass,
            None => DEFAULT_CREDENTIALS.iter().any(|known| is(known)),
        }
    }

    /// Returns the headers that are part of the vary key, in lower case and in order.
    pub fn cache_key_headers(&self) -> impl Iterator<Item = &str> + Clone {
        let keyed = self.policies.iter().filter(|(_, policy)| *policy == Key);
        keyed.map(|(name, _)| &**name)
    }
}

/// Whether a byte may be part of a header name (RFC 9110, 5.6.2).
fn is_header_name_byte(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte)
}

#[cfg(test)]
mod tests {
    use super::{CredentialsHeaderNameError, CredentialsPolicies, CredentialsPolicy};

    fn keyed(credentials: &CredentialsPolicies) -> Vec<&str> {
        credentials.cache_key_headers().collect()
    }

    #[test]
    fn only_default_credentials_bypass_the_cache_when_unset() {
        let mut credentials = CredentialsPolicies::default();
        assert!(
            credentials.header_causes_bypass(b"Authorization")
                && credentials.header_causes_bypass(b"COOKIE")
        );
        assert!(
            !credentials.header_causes_bypass(b"X-Api-Key")
                && !credentials.header_causes_bypass(b"Author")
        );
        credentials
            .set_credentials_policy(b"X-Api-Key", CredentialsPolicy::Key)
            .unwrap();
        assert!(
            credentials.header_causes_bypass(b"authorization")
                && !credentials.header_causes_bypass(b"X-API-KEY")
        );
        assert_eq!(keyed(&credentials), ["x-api-key"]);
    }

    #[test]
    fn header_keeps_its_first_policy() {
        let mut credentials = CredentialsPolicies::default();
        credentials
            .set_credentials_policy(b"X-Api-Key", CredentialsPolicy::Key)
            .unwrap();
        credentials
            .set_credentials_policy(b"Cookie", CredentialsPolicy::Ignore)
            .unwrap();
        credentials
            .set_credentials_policy(b"X-Internal", CredentialsPolicy::Bypass)
            .unwrap();
        credentials
            .set_credentials_policy(b"Authorization", CredentialsPolicy::Key)
            .unwrap();
        assert_eq!(keyed(&credentials), ["authorization", "x-api-key"]);
        assert!(
            !credentials.header_causes_bypass(b"cookie")
                && credentials.header_causes_bypass(b"x-internal")
        );
        let before = credentials.clone();
        assert_eq!(
            credentials.set_credentials_policy(b"x-api-KEY", CredentialsPolicy::Ignore),
            Err(CredentialsHeaderNameError::Duplicate)
        );
        assert_eq!(
            credentials.set_default_credentials_policy(CredentialsPolicy::Key),
            Err(CredentialsHeaderNameError::Duplicate)
        );
        assert_eq!(credentials, before);
    }

    #[test]
    fn default_policy_applies_to_authorization_and_cookie() {
        let mut credentials = CredentialsPolicies::default();
        credentials
            .set_default_credentials_policy(CredentialsPolicy::Ignore)
            .unwrap();
        assert!(
            !credentials.header_causes_bypass(b"authorization")
                && !credentials.header_causes_bypass(b"cookie")
        );
        let mut credentials = CredentialsPolicies::default();
        credentials
            .set_default_credentials_policy(CredentialsPolicy::Key)
            .unwrap();
        assert_eq!(keyed(&credentials), ["authorization", "cookie"]);
    }

    #[test]
    fn invalid_header_names_are_rejected() {
        for name in ["", "a b", "a:b", "\u{e9}", "a\"", "key", "bypass"] {
            let result = CredentialsPolicies::default()
                .set_credentials_policy(name.as_bytes(), CredentialsPolicy::Key);
            assert_eq!(result, Err(CredentialsHeaderNameError::Name), "{name}");
        }
    }
}
