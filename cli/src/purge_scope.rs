//! The scope of a purge as a query and as the owner's JSON, and the effect of a purge in the fleet.

use std::fmt::Write;

use serde_json::Value;
use sszip_core::cache::link::purge_request;

use crate::server_text::printable;
use crate::CommandError;

/// Returns the parameters of a scope as a query (`application/x-www-form-urlencoded`).
///
/// # Errors
/// The scope is one of the protocol between a process and its owner.
pub fn scope_query(scope: &[String]) -> Result<String, CommandError> {
    if scope.iter().any(|part| part.starts_with("wrong-chain")) {
        let text = "wrong-chain is no scope of a command; purge the namespace";
        return Err(CommandError::Usage(text.into()));
    }
    let parameters: Vec<_> = scope.iter().map(|part| encode_parameter(part)).collect();
    Ok(parameters.join("&"))
}

/// Returns the body of `POST /v1/purges` for a query.
///
/// # Errors
/// The scope is invalid.
pub fn scope_body(query: &str) -> Result<String, CommandError> {
    purge_request(query.as_bytes(), None).map_err(CommandError::Usage)
}

/// Checks a query for the purges of a proxy, which has a namespace of its own.
///
/// # Errors
/// The scope is invalid.
pub fn check_proxy_query(query: &str) -> Result<(), CommandError> {
    let body = purge_request(query.as_bytes(), Some(b""));
    body.map(drop).map_err(CommandError::Usage)
}

/// Encodes a parameter `NAME=VALUE` of a query.
fn encode_parameter(parameter: &str) -> String {
    let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
    let encode = |text: &str| {
        text.bytes().fold(String::new(), |mut encoded, byte| {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                    encoded.push(char::from(byte));
                }
                _ => {
                    // writes to a String do not fail
                    let _ = write!(encoded, "%{byte:02X}");
                }
            }
            encoded
        })
    };
    format!("{}={}", encode(name), encode(value))
}

/// Checks that a purge is in effect at all owners of the fleet, from the member `fleet` of its
/// report.
///
/// # Errors
/// Fails if there is no fleet, if it is not available, or if an owner has not confirmed the purge.
pub fn check_fleet_purge(fleet: &Value) -> Result<(), CommandError> {
    let failure = match (fleet.as_object(), fleet["error"].as_str()) {
        (None, _) => "the owner has no fleet: the purge is in effect on this machine only".into(),
        (_, Some(error)) => format!(
            "the fleet is not available: {}; the purge is in effect on this machine, and is \
             published before the owner uses the fleet again",
            printable(error)
        ),
        _ => {
            let count = |member| fleet[member].as_u64().unwrap_or(0);
            let (confirmed, owners) = (count("confirmed"), count("owners"));
            if confirmed >= owners {
                return Ok(());
            }
            format!("{confirmed} of {owners} owners have confirmed the purge; repeat it later")
        }
    };
    Err(CommandError::Data(failure))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn purge_report_is_accepted_when_all_owners_have_confirmed() {
        let check = |fleet: Value| match check_fleet_purge(&fleet) {
            Err(CommandError::Data(text)) => text,
            _ => String::new(),
        };
        assert_eq!(check(json!({"owners": 3, "confirmed": 3, "silent": 0})), "");
        let part = check(json!({"owners": 3, "confirmed": 2, "silent": 1}));
        assert!(part.starts_with("2 of 3 owners"), "{part}");
        let pending = check(json!({"error": "unreachable", "pending": true}));
        assert!(pending.contains("not available: unreachable;"), "{pending}");
        assert!(check(Value::Null).contains("no fleet"));
    }

    #[test]
    fn parameters_are_encoded_for_the_query() {
        let query = |parts: &[&str]| {
            let parts: Vec<_> = parts.iter().map(|part| (*part).to_owned()).collect();
            scope_query(&parts)
        };
        assert_eq!(query(&["everything"]).unwrap(), "everything=");
        assert_eq!(
            query(&["namespace=a b&c=d", "method=eth_call"]).unwrap(),
            "namespace=a%20b%26c%3Dd&method=eth_call"
        );
        assert!(matches!(
            query(&["wrong-chain=00"]),
            Err(CommandError::Usage(_))
        ));
    }

    #[test]
    fn blocks_need_a_namespace_only_without_a_proxy() {
        assert!(check_proxy_query("blocks=1-2").is_ok());
        assert!(check_proxy_query("all=").is_err());
        assert!(scope_body("blocks=1-2").is_err());
        assert!(scope_body("namespace=a&blocks=1-2").is_ok());
    }
}
