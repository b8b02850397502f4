//! The head sources of a whole configuration, one per namespace.

use std::fmt;

use super::head_source::{is_valid_namespace_name, HeadSource};

/// A `cache_head` directive as one configuration block declares it: the head source, its namespace,
/// and its position for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredHeadSource {
    /// The node and its parameters.
    pub follow: HeadSource,
    /// The namespace, or `None` for the namespace of the route.
    pub namespace: Option<String>,
    /// Position in the configuration, for messages.
    pub at: String,
}

/// The origin of a route's cache namespace: derived from the route, one configured name, or a name
/// per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceSource<'a> {
    /// Not configured: the namespace is derived from route, host and path.
    Derived,
    /// A fixed name for all requests.
    Fixed(&'a [u8]),
    /// A name that depends on the request.
    PerRequest,
}

/// The head sources of a whole configuration, at most one per namespace; the owner runs a chain
/// follower for each.
#[derive(Clone, Debug, Default)]
pub struct HeadSourcesByNamespace {
    list: Vec<NamespaceHeadSource>,
}

/// The head source of one namespace, and its position in the configuration.
#[derive(Clone, Debug)]
struct NamespaceHeadSource {
    namespace: String,
    follow: HeadSource,
    at: String,
}

/// The reason why a head source is rejected when its route is added to the configuration. The text
/// continues a sentence that begins with the directive's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadSourceError {
    /// The route has no named namespace.
    Unnamed,
    /// The namespace of the route depends on the request.
    PerRequest,
    /// The name of the namespace is not suitable for logs.
    NotText,
    /// The namespace has two different head sources.
    Two {
        /// The name of the namespace.
        namespace: String,
        /// URLs without paths of both nodes, and their positions in the configuration.
        heads: Box<[(String, String); 2]>,
    },
}

impl fmt::Display for HeadSourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unnamed => f.write_str(
                "needs a named namespace: set \"cache_namespace\" where the cache is on, or add \
                 \"namespace=NAME\"",
            ),
            Self::PerRequest => f.write_str(
                "needs a namespace that is the same for all requests, and \"cache_namespace\" has \
                 variables: add \"namespace=NAME\"",
            ),
            Self::NotText => f.write_str(
                "needs a namespace whose name is UTF-8 without control characters and not empty: \
                 change \"cache_namespace\", or add \"namespace=NAME\"",
            ),
            Self::Two { namespace, heads } => {
                let [(first, first_at), (second, second_at)] = &**heads;
                write!(
                    f,
                    "sets a second node for the namespace \"{namespace}\": \"{second}\" \
                     ({second_at}), but it follows \"{first}\" ({first_at})"
                )
            }
        }
    }
}

impl std::error::Error for HeadSourceError {}

impl HeadSourcesByNamespace {
    /// Adds the head sources of a route whose cache is enabled.
    ///
    /// # Errors
    /// The reason why a head source is rejected, and its position in the configuration.
    pub fn add_route_head_sources<'a>(
        &mut self,
        place: &'a [DeclaredHeadSource],
        named: NamespaceSource<'_>,
    ) -> Result<(), (HeadSourceError, &'a str)> {
        let mut follows = place.iter();
        follows.try_for_each(|declared| {
            self.add_head_source(declared, named)
                .map_err(|error| (error, declared.at.as_str()))
        })
    }

    /// Adds a head source under its own namespace, or the namespace of its route. A source that the
    /// namespace already has is ignored; a different one is an error.
    fn add_head_source(
        &mut self,
        declared: &DeclaredHeadSource,
        named: NamespaceSource<'_>,
    ) -> Result<(), HeadSourceError> {
        let DeclaredHeadSource { follow, at, .. } = declared;
        let namespace = match (&declared.namespace, named) {
            (Some(namespace), _) => namespace.clone(),
            (None, NamespaceSource::Derived) => return Err(HeadSourceError::Unnamed),
            (None, NamespaceSource::PerRequest) => return Err(HeadSourceError::PerRequest),
            (None, NamespaceSource::Fixed(name)) => match std::str::from_utf8(name) {
                Ok(name) if is_valid_namespace_name(name) => name.to_owned(),
                _ => return Err(HeadSourceError::NotText),
            },
        };
        let same = |followed: &&NamespaceHeadSource| followed.namespace == namespace;
        let Some(before) = self.list.iter().find(same) else {
            self.list.push(NamespaceHeadSource {
                namespace,
                follow: follow.clone(),
                at: at.clone(),
            });
            return Ok(());
        };
        if before.follow == *follow {
            return Ok(());
        }
        Err(HeadSourceError::Two {
            heads: Box::new([
                (before.follow.url_origin().to_owned(), before.at.clone()),
                (follow.url_origin().to_owned(), at.clone()),
            ]),
            namespace,
        })
    }

    /// Adds the head sources of a configuration that was read later, and replaces those whose
    /// namespace it has too.
    pub fn merge_later_head_sources(&mut self, later: &Self) {
        for new in &later.list {
            let same = |followed: &&mut NamespaceHeadSource| followed.namespace == new.namespace;
            match self.list.iter_mut().find(same) {
                Some(known) => known.clone_from(new),
                None => self.list.push(new.clone()),
            }
        }
    }

    /// Whether both have equal head sources for the same namespaces, in any order.
    pub fn has_same_head_sources(&self, other: &Self) -> bool {
        let is_there = |(name, follow)| other.iter().any(|one| one == (name, follow));
        self.list.len() == other.list.len() && self.iter().all(is_there)
    }

    /// Returns all head sources with their namespaces.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &HeadSource)> {
        self.list
            .iter()
            .map(|followed| (followed.namespace.as_str(), &followed.follow))
    }

    /// Serializes the head sources for the owner, which polls them: an array with an array of
    /// strings for each, the namespace and then the directive's words.
    pub fn to_json(&self) -> String {
        let rows = self.iter().map(|(namespace, follow)| {
            let mut row = vec![namespace.to_owned()];
            row.extend(follow.to_directive_words());
            serde_json::Value::from(row)
        });
        serde_json::Value::from_iter(rows).to_string()
    }
}

/// Reads namespaces and head sources from the JSON that [`HeadSourcesByNamespace::to_json`] writes.
///
/// # Errors
/// The text describes the problem, and contains no value of a header.
pub fn head_sources_from_json(json: &[u8]) -> Result<Vec<(String, HeadSource)>, String> {
    let rows: Vec<Vec<String>> =
        serde_json::from_slice(json).map_err(|error| match error.classify() {
            // its message would contain the value
            serde_json::error::Category::Data => "the list of head sources is invalid: a row is \
                 not an array of strings"
                .into(),
            _ => format!("the list of head sources is not JSON: {error}"),
        })?;
    rows.into_iter()
        .map(|row| {
            let Some((namespace, words)) = row.split_first() else {
                return Err("a head source has no namespace".into());
            };
            let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
            match HeadSource::parse_head_source(&words) {
                Ok((follow, None)) => Ok((namespace.clone(), follow)),
                Ok((_, Some(_))) => Err(format!(
                    "the head source of \"{namespace}\" has a second namespace"
                )),
                Err(error) => Err(format!("the head source of \"{namespace}\" {error}")),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        head_sources_from_json, DeclaredHeadSource, HeadSourceError, HeadSourcesByNamespace,
        NamespaceSource,
    };
    use crate::config::{DirectiveLocation, RouteConfigBlock};
    use crate::memory::MemoryBudget;

    fn set(directives: &mut RouteConfigBlock, line: &str) -> Result<(), String> {
        set_at(directives, line, "f:1")
    }

    fn set_at(directives: &mut RouteConfigBlock, line: &str, at: &str) -> Result<(), String> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        directives
            .set_directive_with_location("cache_head", &words, DirectiveLocation { at })
            .map_err(|error| error.to_string())
    }

    fn place(lines: &[&str]) -> Arc<Vec<DeclaredHeadSource>> {
        place_at(lines, "f:1")
    }

    fn place_at(lines: &[&str], at: &str) -> Arc<Vec<DeclaredHeadSource>> {
        let mut directives = RouteConfigBlock::default();
        for line in lines {
            set_at(&mut directives, line, at).unwrap();
        }
        directives
            .resolve_route_config(MemoryBudget::new())
            .cache
            .follows
    }

    fn followed(follows: &HeadSourcesByNamespace) -> Vec<(&str, &str)> {
        follows
            .iter()
            .map(|(name, follow)| (name, follow.url_origin()))
            .collect()
    }

    #[test]
    fn later_head_source_replaces_the_one_of_its_namespace() {
        let of = |lines: &[&str]| {
            let mut follows = HeadSourcesByNamespace::default();
            follows
                .add_route_head_sources(&place(lines), NamespaceSource::Derived)
                .unwrap();
            follows
        };
        let mut all = of(&["http://a namespace=a", "http://b namespace=b"]);
        let before = all.clone();
        all.merge_later_head_sources(&of(&["http://b namespace=b"]));
        assert!(all.has_same_head_sources(&before));
        assert!(all.has_same_head_sources(&of(&["http://b namespace=b", "http://a namespace=a"])));
        assert!(!all.has_same_head_sources(&of(&["http://b namespace=b"])));
        all.merge_later_head_sources(&of(&["http://c namespace=c", "http://d namespace=a"]));
        assert!(!all.has_same_head_sources(&before) && !before.has_same_head_sources(&all));
        let expected = [("a", "http://d"), ("b", "http://b"), ("c", "http://c")];
        assert_eq!(followed(&all), expected);
    }

    #[test]
    fn head_source_belongs_to_the_namespace_of_its_route_unless_named() {
        let mut follows = HeadSourcesByNamespace::default();
        let main = NamespaceSource::Fixed(b"main");
        follows
            .add_route_head_sources(&place(&[]), NamespaceSource::Derived)
            .unwrap();
        follows
            .add_route_head_sources(&place(&["off"]), NamespaceSource::Derived)
            .unwrap();
        follows
            .add_route_head_sources(&place(&["http://a"]), main)
            .unwrap();
        let two = place(&["http://b namespace=b", "http://c namespace=c"]);
        for named in [NamespaceSource::Derived, NamespaceSource::PerRequest, main] {
            follows.add_route_head_sources(&two, named).unwrap();
        }
        // an equal declaration again
        follows
            .add_route_head_sources(&place(&["http://a interval=1s"]), main)
            .unwrap();
        let expected = vec![("main", "http://a"), ("b", "http://b"), ("c", "http://c")];
        assert_eq!(followed(&follows), expected);
    }

    #[test]
    fn second_head_source_of_a_namespace_is_rejected() {
        let bare = place(&["http://a/secret header=A:secret"]);
        let error = |place: &[DeclaredHeadSource], named| {
            let mut follows = HeadSourcesByNamespace::default();
            follows
                .add_route_head_sources(&bare, NamespaceSource::Fixed(b"main"))
                .unwrap();
            let (error, at) = follows.add_route_head_sources(place, named).unwrap_err();
            assert_eq!(at, place[0].at);
            assert_eq!(followed(&follows), vec![("main", "http://a")]);
            assert!(!format!("{error} {follows:?}").contains("secret"));
            error
        };
        assert_eq!(
            error(&bare, NamespaceSource::Derived),
            HeadSourceError::Unnamed
        );
        assert_eq!(
            error(&bare, NamespaceSource::PerRequest),
            HeadSourceError::PerRequest
        );
        for name in [&b""[..], b"\xff", b"a\nb"] {
            assert_eq!(
                error(&bare, NamespaceSource::Fixed(name)),
                HeadSourceError::NotText
            );
        }
        for other in [
            "http://b",
            "http://a",
            "http://a/secret header=A:secret2",
            "http://a/secret interval=2s header=A:secret",
        ] {
            let other = place_at(&[other], "f:2");
            let message = error(&other, NamespaceSource::Fixed(b"main")).to_string();
            let expected = format!(
                "sets a second node for the namespace \"main\": \"{}\" (f:2), but it follows \
                 \"http://a\" (f:1)",
                other[0].follow.url_origin()
            );
            assert!(message.starts_with(&expected), "{message}");
        }
    }

    #[test]
    fn duplicate_head_source_of_a_block_is_rejected() {
        for (first, second) in [
            ("http://a", "http://b"),
            ("http://a namespace=x", "http://b namespace=x"),
            ("off", "http://a"),
            ("http://a namespace=x", "off"),
            ("off", "off"),
        ] {
            let mut directives = RouteConfigBlock::default();
            set(&mut directives, first).unwrap();
            let error = set(&mut directives, second).unwrap_err();
            assert_eq!(error, "is duplicate", "{first}, {second}");
        }
        let mixed = place(&["http://a", "http://b namespace=x"]);
        assert_eq!(mixed.len(), 2);
    }

    #[test]
    fn head_sources_are_not_inherited_into_a_block_that_sets_its_own() {
        let mut outer = RouteConfigBlock::default();
        set(&mut outer, "http://a").unwrap();
        let inherited = |line: Option<&str>| {
            let mut inner = RouteConfigBlock::default();
            if let Some(line) = line {
                set(&mut inner, line).unwrap();
            }
            inner.inherit_unset_from(&outer);
            let follows = inner
                .resolve_route_config(MemoryBudget::new())
                .cache
                .follows;
            let places: Vec<String> = follows
                .iter()
                .map(|declared| declared.follow.url_origin().to_owned())
                .collect();
            places
        };
        assert_eq!(inherited(None), ["http://a"]);
        assert_eq!(inherited(Some("http://b namespace=b")), ["http://b"]);
        assert_eq!(inherited(Some("off")), [""; 0]);
    }

    #[test]
    fn head_sources_are_unchanged_after_json_round_trip() {
        let mut follows = HeadSourcesByNamespace::default();
        let place = place(&[
            "https://n/\"p\" finality=depth:7 header=A:b\\c ca=/ca namespace=\u{e9}\"",
            "unix:/s interval=2s",
        ]);
        follows
            .add_route_head_sources(&place, NamespaceSource::Fixed(b"main"))
            .unwrap();
        let read = head_sources_from_json(follows.to_json().as_bytes()).unwrap();
        let written: Vec<_> = follows
            .iter()
            .map(|(name, follow)| (name.to_owned(), follow.clone()))
            .collect();
        assert_eq!(read, written);
        assert_eq!(read.len(), 2);
        for (json, error) in [
            (
                "",
                "the list of head sources is not JSON: EOF while parsing",
            ),
            (
                "[[\"a\", 5]]",
                "the list of head sources is invalid: a row is not an array of strings",
            ),
            ("[[]]", "a head source has no namespace"),
            (
                "[[\"a\"]]",
                "the head source of \"a\" has an invalid value \"\"",
            ),
            (
                "[[\"a\",\"http://n\",\"x\"]]",
                "the head source of \"a\" has an invalid value \"x\"",
            ),
            (
                "[[\"a\",\"http://n\",\"namespace=x\"]]",
                "the head source of \"a\" has a second namespace",
            ),
        ] {
            let message = head_sources_from_json(json.as_bytes()).unwrap_err();
            assert!(message.starts_with(error), "{message}");
        }
    }
}
