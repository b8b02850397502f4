//! Purges of an operator, translated to the owner protocol.

use serde_json::{json, Map};

use crate::cache::vary_key::named_cache_namespace;

pub use crate::cache::process::owner_client::OwnerAdminReply;

/// Returns a problem document as the reply to a purge that was not sent to the owner.
pub(super) fn problem_reply(status: u16, detail: &str) -> OwnerAdminReply {
    (status, problem_document(status, detail).into())
}

/// Returns a problem document (RFC 9457) with the reason of a failure.
pub fn problem_document(status: u16, detail: &str) -> String {
    json!({ "status": status, "detail": detail }).to_string()
}

/// Returns the body of `POST /v1/purges` for a query (`application/x-www-form-urlencoded`, WHATWG
/// URL, 5):
///
/// | query | removes |
/// |---|---|
/// | `everything` | all entries |
/// | `namespace=NAME` | the entries of that `sszip_cache_namespace` |
/// | `method=METHOD` | the entries of a method, in all namespaces or in one |
/// | `blocks=FROM-TO` | the entries of these blocks; one number is one block |
/// | `key=HEX` | one entry |
/// | `wrong-chain=HEX` | the entries of a namespace by its protocol name; it is then suspended |
///
/// Processes, not operators, send `wrong-chain`.
///
/// `own` is the name of the namespace if the query names none.
///
/// # Errors
/// Returns the reason, the detail of the response, if the query is invalid.
pub fn purge_request_body(query: &[u8], own: Option<&[u8]>) -> Result<String, String> {
    let mut request = Map::new();
    for (name, value) in form_urlencoded::parse(query) {
        let bad = |allowed: &str| format!("{name} must be {allowed}");
        let parsed = match &*name {
            "everything" if value.is_empty() => json!(true),
            "everything" => return Err(bad("without a value")),
            "namespace" => json!(const_hex::encode(named_cache_namespace(value.as_bytes()))),
            "method" if is_method(&value) => json!(value),
            "method" => return Err(bad("a JSON-RPC method name")),
            "blocks" => {
                let range =
                    parse_block_range(&value).ok_or_else(|| bad("FROM-TO in decimal digits"))?;
                json!(range)
            }
            "wrong-chain" => {
                let is_hex = value.len() == 32 && value.bytes().all(|it| it.is_ascii_hexdigit());
                if !is_hex {
                    return Err(bad("32 hexadecimal digits"));
                }
                json!(value)
            }
            "key" => {
                let key = blake3::Hash::from_hex(value.as_bytes());
                let key = key.map_err(|_| bad("64 hexadecimal digits"))?;
                json!(key.to_hex().as_str())
            }
            _ => {
                return Err(format!(
                    "unknown parameter {name:?}; allowed are everything, namespace=, method=, \
                     blocks= and key="
                ))
            }
        };
        if request.insert(name.to_string(), parsed).is_some() {
            return Err(format!("{name} occurs twice"));
        }
    }
    let has = |name: &str| request.contains_key(name);
    if request.is_empty() {
        let reason = "the query must select entries: everything, namespace=NAME, method=METHOD, \
                      blocks=FROM-TO or key=HEX";
        return Err(reason.into());
    }
    if request.len() > 1 && (has("everything") || has("key") || has("wrong-chain")) {
        let reason = "everything, key= and wrong-chain= can't be combined with other parameters";
        return Err(reason.into());
    }
    if has("blocks") && has("method") {
        return Err("blocks= and method= can't be combined".into());
    }
    if has("blocks") && !has("namespace") {
        let reason = "blocks= needs namespace=, because blocks of two chains have equal numbers";
        let own = own.ok_or(reason)?;
        request.insert(
            "namespace".into(),
            json!(const_hex::encode(named_cache_namespace(own))),
        );
    }
    serde_json::to_string(&request).map_err(|error| error.to_string())
}

fn is_method(text: &str) -> bool {
    !text.is_empty() && text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn parse_block_range(text: &str) -> Option<[u64; 2]> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten()
    };
    let (from, to) = (number(from)?, number(to)?);
    (from <= to).then_some([from, to])
}

#[cfg(test)]
mod tests {
    use super::purge_request_body;

    #[test]
    fn queries_are_translated_to_purge_requests() {
        let translate = |query: &str| purge_request_body(query.as_bytes(), None).unwrap();
        assert_eq!(translate("everything"), "{\"everything\":true}");
        assert_eq!(translate("everything="), "{\"everything\":true}");
        assert_eq!(translate("method=eth_call"), "{\"method\":\"eth_call\"}");
        let key = "AB".repeat(32);
        let expected = format!("{{\"key\":\"{}\"}}", key.to_lowercase());
        assert_eq!(translate(&format!("key={key}")), expected);
        let one = translate("namespace=main&method=eth_call");
        assert!(one.contains("\"namespace\":\"") && one.contains("\"method\":\"eth_call\""));
        let own = purge_request_body(b"blocks=5-9", Some(b"main")).unwrap();
        assert_eq!(own, translate("namespace=main&blocks=5-9"));
        assert!(
            own.starts_with("{\"blocks\":[5,9],\"namespace\":\""),
            "{own}"
        );
        assert!(translate("namespace=m%61in&blocks=7").contains("\"blocks\":[7,7]"));
    }

    #[test]
    fn ambiguous_queries_are_rejected() {
        for (query, why) in [
            ("", "must select entries"),
            ("everything=1", "without a value"),
            ("all", "unknown parameter"),
            ("method=", "JSON-RPC method"),
            ("method=a%0d%0ab", "JSON-RPC method"),
            ("method=a&method=b", "twice"),
            ("everything&method=a", "combined with other parameters"),
            ("key=12", "64 hexadecimal"),
            ("blocks=5", "needs namespace="),
            ("namespace=a&blocks=9-5", "FROM-TO"),
            ("namespace=a&blocks=-5", "FROM-TO"),
            ("namespace=a&blocks=%2B5-9", "FROM-TO"),
            ("namespace=a&blocks=5&method=a", "combined"),
        ] {
            let error = purge_request_body(query.as_bytes(), None).unwrap_err();
            assert!(error.contains(why), "{query}: {error}");
        }
    }
}
