//! The tables `[[head]]` of the daemon's configuration: the followed nodes. The core checks their
//! values (`sszip_core::config::head_source`), as for the directive of nginx.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::de::{Deserializer, Error};
use serde::Deserialize;
use sszip_core::config::head_source::HeadSource;

use crate::config_values::deserialize_absolute_path;

/// One table `[[head]]`: the name of a namespace, and the node whose chain the owner follows for
/// it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawHeadSource")]
struct NamespaceHeadSource(String, HeadSource);

/// A table `[[head]]` as it is written, before the core parses its values.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHeadSource {
    namespace: String,
    url: String,
    interval: Option<String>,
    finality: Option<String>,
    api: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "deserialize_file_path")]
    ca: Option<PathBuf>,
}

impl TryFrom<RawHeadSource> for NamespaceHeadSource {
    type Error = String;

    fn try_from(table: RawHeadSource) -> Result<Self, String> {
        let named = [
            ("namespace", Some(table.namespace.clone())),
            ("interval", table.interval),
            ("finality", table.finality),
            ("api", table.api),
            ("ca", table.ca.map(|ca| ca.display().to_string())),
        ];
        let named = named.into_iter();
        let named = named.filter_map(|(name, value)| Some(format!("{name}={}", value?)));
        let headers = table.headers.iter();
        let headers = headers.map(|(name, value)| format!("header={name}:{value}"));
        let words: Vec<String> = [table.url]
            .into_iter()
            .chain(named)
            .chain(headers)
            .collect();
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        match HeadSource::parse_head_source(&words) {
            Ok((follow, _)) => Ok(Self(table.namespace, follow)),
            Err(error) => Err(format!("the [[head]] of \"{}\" {error}", table.namespace)),
        }
    }
}

/// Deserializes all tables `[[head]]`; each namespace may have one.
pub(crate) fn deserialize_head_source_tables<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<(String, HeadSource)>, D::Error> {
    let mut follows: Vec<(String, HeadSource)> = Vec::new();
    for NamespaceHeadSource(name, follow) in Vec::<NamespaceHeadSource>::deserialize(from)? {
        if let Some((_, first)) = follows.iter().find(|(other, _)| *other == name) {
            return Err(D::Error::custom(format_args!(
                "the namespace \"{name}\" has two [[head]] tables, \"{}\" and \"{}\"; remove one",
                first.url_origin(),
                follow.url_origin()
            )));
        }
        follows.push((name, follow));
    }
    Ok(follows)
}

fn deserialize_file_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    deserialize_absolute_path(from).map(Some)
}

#[cfg(test)]
mod tests {
    use sszip_core::config::head_source::{FinalizedBlockRule, NodeApi};

    use super::*;
    use crate::config::OwnerConfig;

    /// Parses the heads of a file whose tables begin on line 4.
    fn parse_head_tables(tables: &str) -> Result<Vec<(String, HeadSource)>, String> {
        let text = format!("socket = \"/run/s\"\npath = \"/var/s\"\n\n{tables}");
        let config = OwnerConfig::parse_owner_config(&text, "cached.toml");
        config
            .map(|config| config.follows)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn minimal_head_is_a_namespace_and_a_url() {
        assert_eq!(parse_head_tables("").unwrap(), []);
        let follows =
            parse_head_tables("[[head]]\nnamespace = \"main\"\nurl = \"http://node\"\n").unwrap();
        let expected = HeadSource::new(b"http://node").unwrap();
        assert_eq!(follows, [("main".to_owned(), expected)]);
    }

    #[test]
    fn head_with_every_setting_is_parsed() {
        let follows = parse_head_tables(
            "[[head]]\nnamespace = \"main\"\nurl = \"https://node:1/x\"\ninterval = \"500ms\"\n\
             finality = \"depth:64\"\napi = \"beacon\"\nca = \"/etc/ca.pem\"\n\
             headers = { Authorization = \"Bearer x: y\", X-Key = \"1\" }\n\
             [[head]]\nnamespace = \"other\"\nurl = \"unix:/run/geth.ipc\"\n",
        )
        .unwrap();
        let follow = &follows[0].1;
        assert_eq!(follow.interval, 500);
        assert_eq!(
            (follow.finality, follow.api),
            (FinalizedBlockRule::Depth(64), NodeApi::Beacon)
        );
        assert_eq!(follow.ca, Some("/etc/ca.pem".into()));
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let fields = [field("Authorization", "Bearer x: y"), field("X-Key", "1")];
        assert_eq!(follow.headers, fields);
        assert_eq!(follows[1].0, "other");
    }

    #[test]
    fn invalid_heads_are_rejected_with_the_line_and_the_allowed_values() {
        for (line, expected) in [
            ("finality = \"safe\"", "cached.toml:4: the [[head]] of \"main\" has an invalid value \"finality=safe\": it must be"),
            ("finality = \"depth:0\"", "cached.toml:4: the [[head]] of \"main\" has an invalid"),
            ("api = \"rpc\"", "cached.toml:4: the [[head]] of \"main\" has an invalid value \"api=rpc\": it must be \"api=execution\" or"),
            ("interval = \"10ms\"", "cached.toml:4: the [[head]] of \"main\" has an invalid value \"interval=10ms\""),
            ("interval = 5", "cached.toml:7: invalid type: integer `5`, expected a string"),
            ("headers = { \"a b\" = \"secret\" }", "cached.toml:4: the [[head]] of \"main\" has an invalid value \"header=a b:...\""),
            ("headers = { Host-x = \"\\u0001secret\" }", "cached.toml:4: the [[head]] of \"main\" has an invalid value \"header=Host-x:...\""),
            ("ca = \"ca.pem\"", "cached.toml:7: \"ca.pem\" is not an absolute path"),
            ("ca = \"/ca.pem\"", "cached.toml:4: the [[head]] of \"main\" has an invalid value \"ca=/ca.pem\": it must be used with an \"https://\""),
            ("uri = \"x\"", "cached.toml:7: unknown field `uri`, expected one of `namespace`, `url`"),
        ] {
            let table = "[[head]]\nnamespace = \"main\"\nurl = \"http://node\"\n";
            let error = parse_head_tables(&format!("{table}{line}\n")).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        for (table, expected) in [
            ("[[head]]\nnamespace = \"main\"\n", "cached.toml:4: missing field `url`"),
            ("[[head]]\nurl = \"http://node\"\n", "cached.toml:4: missing field `namespace`"),
            ("[[head]]\nnamespace = \"\"\nurl = \"http://node\"\n", "cached.toml:4: the [[head]] of \"\" has an invalid value"),
            ("[[head]]\nnamespace = \"a\"\nurl = \"ftp://node\"\n", "cached.toml:4: the [[head]] of \"a\" has an invalid value \"ftp://node\": it must be a URL"),
            ("[[head]]\nnamespace = \"a\"\nurl = \"http://x/secret\"\n[[head]]\nnamespace = \"a\"\nurl = \"http://y\"\n", "cached.toml:4: the namespace \"a\" has two [[head]] tables, \"http://x\" and \"http://y\""),
        ] {
            let error = parse_head_tables(table).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
