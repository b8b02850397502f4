//! The tables `[[head]]` of the daemon's configuration: the nodes that are
//! followed. What each may say is the core's (`sszip_core::config::follow`), as
//! for nginx's directive.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;

use serde::de::{Deserializer, Error};
use serde::Deserialize;
use sszip_core::config::follow::{Api, Finality, Follow};

use crate::units::{absolute, time};

/// A table, each of its values good by itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, try_from = "Table")]
struct Named(String, Follow);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(deserialize_with = "name")]
    namespace: String,
    #[serde(deserialize_with = "at")]
    url: Follow,
    #[serde(default, deserialize_with = "interval")]
    interval: Option<u64>,
    #[serde(default, deserialize_with = "finality")]
    finality: Finality,
    #[serde(default, deserialize_with = "api")]
    api: Api,
    #[serde(default, deserialize_with = "headers")]
    headers: Vec<(String, String)>,
    #[serde(default, deserialize_with = "file")]
    ca: Option<PathBuf>,
}

impl TryFrom<Table> for Named {
    type Error = String;

    fn try_from(table: Table) -> Result<Self, String> {
        let follow = Follow {
            interval: table.interval.unwrap_or(table.url.interval),
            finality: table.finality,
            api: table.api,
            headers: table.headers,
            ca: table.ca,
            url: table.url.url,
        };
        follow
            .check()
            .map_err(|error| format!("the head of \"{}\" {error}", table.namespace))?;
        Ok(Self(table.namespace, follow))
    }
}

/// All tables; no namespace has two.
pub(crate) fn follows<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<(String, Follow)>, D::Error> {
    let mut follows: Vec<(String, Follow)> = Vec::new();
    for Named(name, follow) in Vec::<Named>::deserialize(from)? {
        if let Some((_, first)) = follows.iter().find(|(other, _)| *other == name) {
            return Err(D::Error::custom(format_args!(
                "the namespace \"{name}\" has two heads, \"{}\" and \"{}\": it may have one",
                first.place(),
                follow.place()
            )));
        }
        follows.push((name, follow));
    }
    Ok(follows)
}

/// What the core says of a value, of the field that it stands in.
fn of<E: Error>(field: &str) -> impl Fn(&dyn Display) -> E + '_ {
    move |error| E::custom(format_args!("{field} {error}"))
}

fn at<'de, D: Deserializer<'de>>(from: D) -> Result<Follow, D::Error> {
    let url = String::deserialize(from)?;
    Follow::at(url.as_bytes()).map_err(|error| of("url")(&error))
}

/// One word of the directive that says the same.
fn word<E: Error>(field: &str, word: &str) -> Result<(Follow, Option<String>), E> {
    // any node will do
    let words = [&b"http://node"[..], word.as_bytes()];
    Follow::parse(&words).map_err(|error| of(field)(&error))
}

fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    word("namespace", &format!("namespace={name}"))?;
    Ok(name)
}

fn interval<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let interval = time(from)?;
    let (follow, _) = word("interval", &format!("interval={interval}ms"))?;
    Ok(Some(follow.interval))
}

fn finality<'de, D: Deserializer<'de>>(from: D) -> Result<Finality, D::Error> {
    let finality = String::deserialize(from)?;
    Finality::parse(finality.as_bytes()).map_err(|error| of("finality")(&error))
}

fn api<'de, D: Deserializer<'de>>(from: D) -> Result<Api, D::Error> {
    let api = String::deserialize(from)?;
    Api::parse(api.as_bytes()).map_err(|error| of("api")(&error))
}

fn headers<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, String)>, D::Error> {
    let mut headers = Vec::new();
    for (name, value) in BTreeMap::<String, String>::deserialize(from)? {
        let (follow, _) = word("headers", &format!("header={name}:{value}"))?;
        headers.extend(follow.headers);
    }
    Ok(headers)
}

fn file<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    absolute(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// Three lines, and the tables begin with the fourth.
    fn parse(tables: &str) -> Result<Vec<(String, Follow)>, String> {
        let text = format!("socket = \"/run/s\"\npath = \"/var/s\"\n\n{tables}");
        let config = Config::parse(&text, "cached.toml");
        config
            .map(|config| config.follows)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_least_is_a_name_and_a_url() {
        assert_eq!(parse("").unwrap(), []);
        let follows = parse("[[head]]\nnamespace = \"main\"\nurl = \"http://node\"\n").unwrap();
        let expected = Follow::at(b"http://node").unwrap();
        assert_eq!(follows, [("main".to_owned(), expected)]);
    }

    #[test]
    fn all_can_be_said() {
        let follows = parse(
            "[[head]]\nnamespace = \"main\"\nurl = \"https://node:1/x\"\ninterval = \"500ms\"\n\
             finality = \"depth:64\"\napi = \"beacon\"\nca = \"/etc/ca.pem\"\n\
             headers = { Authorization = \"Bearer x: y\", X-Key = \"1\" }\n\
             [[head]]\nnamespace = \"other\"\nurl = \"unix:/run/geth.ipc\"\n",
        )
        .unwrap();
        let follow = &follows[0].1;
        assert_eq!(follow.interval, 500);
        assert_eq!(follow.finality, Finality::Depth(64));
        assert_eq!(follow.api, Api::Beacon);
        assert_eq!(follow.ca, Some("/etc/ca.pem".into()));
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let fields = [field("Authorization", "Bearer x: y"), field("X-Key", "1")];
        assert_eq!(follow.headers, fields);
        assert_eq!(follows[1].0, "other");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_what_is_allowed() {
        for (line, expected) in [
            ("finality = \"safe\"", "cached.toml:7: finality has an invalid value \"finality=safe\": it must be"),
            ("finality = \"depth:0\"", "cached.toml:7: finality has an invalid"),
            ("api = \"rpc\"", "cached.toml:7: api has an invalid value \"api=rpc\": it must be \"api=execution\" or"),
            ("interval = \"10ms\"", "cached.toml:7: interval has an invalid value \"interval=10ms\""),
            ("interval = 5", "cached.toml:7: invalid value: integer `5`, expected a time"),
            ("headers = { \"a b\" = \"secret\" }", "cached.toml:7: headers has an invalid value \"header=a b:...\""),
            ("headers = { Host-x = \"\\u0001secret\" }", "cached.toml:7: headers has an invalid value \"header=Host-x:...\""),
            ("ca = \"ca.pem\"", "cached.toml:7: \"ca.pem\" is not an absolute path"),
            ("ca = \"/ca.pem\"", "cached.toml:4: the head of \"main\" has an invalid value \"ca=/ca.pem\": it must be used with an \"https://\""),
            ("uri = \"x\"", "cached.toml:7: unknown field `uri`, expected one of `namespace`, `url`"),
        ] {
            let table = "[[head]]\nnamespace = \"main\"\nurl = \"http://node\"\n";
            let error = parse(&format!("{table}{line}\n")).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        for (table, expected) in [
            ("[[head]]\nnamespace = \"main\"\n", "cached.toml:4: missing field `url`"),
            ("[[head]]\nurl = \"http://node\"\n", "cached.toml:4: missing field `namespace`"),
            ("[[head]]\nnamespace = \"\"\nurl = \"http://node\"\n", "cached.toml:5: namespace has an invalid value"),
            ("[[head]]\nurl = \"ftp://node\"\n", "cached.toml:5: url has an invalid value \"ftp://node\": it must be a URL"),
            ("[[head]]\nnamespace = \"a\"\nurl = \"http://x/secret\"\n[[head]]\nnamespace = \"a\"\nurl = \"http://y\"\n", "cached.toml:4: the namespace \"a\" has two heads, \"http://x\" and \"http://y\""),
        ] {
            let error = parse(table).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
