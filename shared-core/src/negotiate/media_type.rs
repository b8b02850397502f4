//! Media types (RFC 9110, section 8.3.1) and the sets that operators configure.

use super::list_header::{split_outside_quotes, trim_header_whitespace};

const EVENT_STREAM: &[u8] = b"text/event-stream";

/// Whether a `Content-Type` value is `application/json`, with any parameters.
pub fn is_json_type(content_type: &[u8]) -> bool {
    media_type_essence(content_type).eq_ignore_ascii_case(b"application/json")
}

/// Whether a `Content-Type` value names JSON by any of the names that servers use:
/// `application/json`, `text/json`, or a suffix `+json` (RFC 6839), except
/// `application/problem+json`.
pub fn is_json_like_media_type(content_type: &[u8]) -> bool {
    const SUFFIX: &[u8] = b"+json";
    let essence = media_type_essence(content_type);
    let start = essence.len().saturating_sub(SUFFIX.len());
    is_json_type(essence)
        || essence.eq_ignore_ascii_case(b"text/json")
        || essence[start..].eq_ignore_ascii_case(SUFFIX) && !is_problem_json(essence)
}

/// Whether a `Content-Type` value names text, and therefore not SSZ.
pub fn is_text_media_type(content_type: &[u8]) -> bool {
    const TEXT: &[u8] = b"text/";
    let start = media_type_essence(content_type).get(..TEXT.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(TEXT))
}

/// Whether a `Content-Type` value is `application/octet-stream`.
pub fn is_octet_stream(content_type: &[u8]) -> bool {
    media_type_essence(content_type).eq_ignore_ascii_case(b"application/octet-stream")
}

/// Whether a `Content-Type` value is `application/problem+json` (RFC 7807).
pub fn is_problem_json(content_type: &[u8]) -> bool {
    media_type_essence(content_type).eq_ignore_ascii_case(b"application/problem+json")
}

/// Whether a `Content-Type` value is `application/x-www-form-urlencoded`.
pub fn is_form_type(content_type: &[u8]) -> bool {
    media_type_essence(content_type).eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
}

/// Returns the values of all `charset` parameters of a `Content-Type` value, without quotes;
/// values of `charset*` (RFC 8187) are returned as written.
pub fn charset_parameters(content_type: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parameters = split_outside_quotes(content_type, b';').skip(1);
    parameters.filter_map(|parameter| {
        const NAME: &[u8] = b"charset";
        let parameter = trim_header_whitespace(parameter);
        let name = parameter.get(..NAME.len())?;
        if !name.eq_ignore_ascii_case(NAME) {
            return None;
        }
        let rest = trim_header_whitespace(&parameter[NAME.len()..]);
        let value = match rest {
            [b'=', value @ ..] => trim_header_whitespace(value),
            // the meaning is unknown
            other => other,
        };
        Some(match value {
            [b'"', value @ .., b'"'] => value,
            value => value,
        })
    })
}

/// A set of media types that an operator has configured: types, ranges and suffixes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediaTypeSet(Vec<MediaTypePattern>);

/// One member of a media type set, as the operator writes it: a type, a range or a suffix.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MediaTypePattern {
    /// `*` or `*/*`
    Any,
    /// `type/subtype`, lower case
    Exact(Box<[u8]>),
    /// `type/*`: contains `type/`
    Range(Box<[u8]>),
    /// `+suffix` (RFC 6839): contains `+suffix`
    Suffix(Box<[u8]>),
}

impl Default for MediaTypeSet {
    /// Returns the types of nodes' responses, apart from binary SSZ.
    fn default() -> Self {
        Self(vec![
            MediaTypePattern::Exact((*b"application/json").into()),
            MediaTypePattern::Suffix((*b"+json").into()),
            MediaTypePattern::Exact((*b"application/javascript").into()),
            MediaTypePattern::Range((*b"text/").into()),
        ])
    }
}

impl MediaTypeSet {
    /// Parses patterns as operators write them: `type/subtype`, `type/*`, `+suffix`, `*`. The
    /// error is the pattern that is invalid.
    pub fn parse_media_type_patterns<'a>(
        words: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Self, &'a [u8]> {
        words
            .map(|word| MediaTypePattern::parse_pattern(word).ok_or(word))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether the type of a `Content-Type` value is in the set. Parameters are ignored; gRPC,
    /// whose messages have codings of their own, is never in the set.
    pub fn contains_media_type(&self, content_type: &[u8]) -> bool {
        let essence = media_type_essence(content_type);
        !essence.is_empty()
            && !is_grpc_essence(essence)
            && self
                .0
                .iter()
                .any(|pattern| pattern.matches_essence(essence))
    }
}

impl MediaTypePattern {
    /// Parses `type/subtype`, `type/*`, `+suffix`, `*` or `*/*`; `None` if the word is none of
    /// these.
    fn parse_pattern(word: &[u8]) -> Option<Self> {
        if word == b"*" || word == b"*/*" {
            return Some(MediaTypePattern::Any);
        }
        let word = word.to_ascii_lowercase();
        if let [b'+', suffix @ ..] = &word[..] {
            return is_http_token(suffix).then(|| MediaTypePattern::Suffix(word.into()));
        }
        let slash = word.iter().position(|&byte| byte == b'/')?;
        let (kind, subtype) = (&word[..slash], &word[slash + 1..]);
        if !is_http_token(kind) || kind == b"*" {
            None
        } else if subtype == b"*" {
            Some(MediaTypePattern::Range(word[..=slash].into()))
        } else {
            is_http_token(subtype).then(|| MediaTypePattern::Exact(word.into()))
        }
    }

    /// Whether the pattern matches `type/subtype`, in any case of its letters.
    fn matches_essence(&self, essence: &[u8]) -> bool {
        match self {
            MediaTypePattern::Any => true,
            MediaTypePattern::Exact(exact) => essence.eq_ignore_ascii_case(exact),
            MediaTypePattern::Range(range) => essence
                .get(..range.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(range)),
            MediaTypePattern::Suffix(suffix) => essence
                .len()
                .checked_sub(suffix.len())
                .is_some_and(|at| essence[at..].eq_ignore_ascii_case(suffix)),
        }
    }
}

/// Whether a `Content-Type` value names gRPC (`application/grpc`, also with
/// a suffix such as `+proto`), whose bodies are message streams.
pub fn is_grpc_type(content_type: &[u8]) -> bool {
    is_grpc_essence(media_type_essence(content_type))
}

/// Whether the media type is `application/grpc`, or begins with it and a suffix such as `+proto` or
/// `-web`.
fn is_grpc_essence(essence: &[u8]) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    essence
        .get(..GRPC.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
        && matches!(essence.get(GRPC.len()), None | Some(b'+' | b'-'))
}

/// Whether a `Content-Type` value names server-sent events, which must be sent one by one.
pub fn is_event_stream(content_type: &[u8]) -> bool {
    media_type_essence(content_type).eq_ignore_ascii_case(EVENT_STREAM)
}

/// Returns `type/subtype` of a `Content-Type` value.
fn media_type_essence(content_type: &[u8]) -> &[u8] {
    let end = content_type
        .iter()
        .position(|&byte| byte == b';')
        .unwrap_or(content_type.len());
    trim_header_whitespace(&content_type[..end])
}

/// Whether a word is a token of RFC 9110, section 5.6.2.
pub fn is_http_token(word: &[u8]) -> bool {
    !word.is_empty()
        && word
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::{
        is_event_stream, is_grpc_type, is_json_like_media_type, is_text_media_type, MediaTypeSet,
    };

    fn types(words: &[&str]) -> MediaTypeSet {
        MediaTypeSet::parse_media_type_patterns(words.iter().map(|word| word.as_bytes())).unwrap()
    }

    #[test]
    fn default_set_contains_the_text_types_of_nodes() {
        let types = MediaTypeSet::default();
        for value in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/json ;charset=utf-8",
            "application/problem+json",
            "text/plain",
            "text/html; charset=utf-8",
            "text/event-stream",
        ] {
            assert!(types.contains_media_type(value.as_bytes()), "{value}");
        }
        for value in [
            "",
            ";",
            "application/octet-stream",
            "application/jsonp",
            "image/png",
            "textual/plain",
            "json",
        ] {
            assert!(!types.contains_media_type(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn patterns_match_types_of_their_kind() {
        assert!(types(&["a/b"]).contains_media_type(b"A/B"));
        assert!(!types(&["a/b"]).contains_media_type(b"a/bc"));
        assert!(types(&["a/*"]).contains_media_type(b"a/anything"));
        assert!(!types(&["a/*"]).contains_media_type(b"ab/c"));
        assert!(types(&["+xml"]).contains_media_type(b"image/svg+XML"));
        assert!(!types(&["+xml"]).contains_media_type(b"text/xml"));
        assert!(types(&["*"]).contains_media_type(b"anything/at.all"));
        assert!(types(&["*/*"]).contains_media_type(b"anything/at.all"));
    }

    #[test]
    fn grpc_is_in_no_set() {
        for value in [
            "application/grpc",
            "application/grpc+proto",
            "application/grpc-web",
        ] {
            assert!(
                !types(&["*", value]).contains_media_type(value.as_bytes()),
                "{value}"
            );
        }
        assert!(types(&["*"]).contains_media_type(b"application/grpcish"));
        assert!(!is_grpc_type(b"application/json"));
    }

    #[test]
    fn event_stream_is_detected() {
        assert!(is_event_stream(b"Text/Event-Stream; charset=utf-8"));
        assert!(!is_event_stream(b"text/plain"));
    }

    #[test]
    fn json_is_detected_by_each_of_its_names() {
        for value in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "text/json",
            "application/vnd.eth+json;v=1",
        ] {
            assert!(is_json_like_media_type(value.as_bytes()), "{value}");
        }
        for value in [
            "",
            "json",
            "text/plain",
            "application/problem+json",
            "application/octet-stream",
        ] {
            assert!(!is_json_like_media_type(value.as_bytes()), "{value}");
        }
        assert!(is_text_media_type(b"Text/plain; charset=utf-8"));
        assert!(!is_text_media_type(b"application/text/plain"));
    }

    #[test]
    fn invalid_pattern_is_returned_as_the_error() {
        for word in [
            "",
            "json",
            "/",
            "a/",
            "/b",
            "*/json",
            "a/b/c",
            "a b/c",
            "+",
            "text/html;q=1",
        ] {
            let words = [b"a/b", word.as_bytes()];
            assert_eq!(
                MediaTypeSet::parse_media_type_patterns(words.into_iter()),
                Err(word.as_bytes())
            );
        }
    }
}
