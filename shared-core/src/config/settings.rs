//! The table of settings, from which the documentation of directives, the schema of Envoy's
//! settings, and their checks are generated. nginx has a table of its own, with what nginx itself
//! checks.

use super::cache::MEMORIES as CACHE_MEMORIES;
use super::cache::{BATCHES, GETS, LOCK_TIMEOUTS, LOOKUP_TIMEOUTS, MAX_ENTRIES, MAX_REQUESTS};
use super::policy::UPGRADES;
use super::ssz::{CONCURRENCIES, HOLDS as SSZ_HOLDS, MAX_SIZES, PRESETS, REQUESTS, WITNESSES};
use super::values::Range;
use super::{BUFFERS, BUFFER_SIZES, COMP_LEVELS, HOLDS, HOLD_TIMES, MAX_ONESHOTS, MEMORIES};
use super::{DECODINGS, ENCODINGS, MIN_LENGTHS, STREAM_LEVELS};
use crate::cache::use_stale;

use Context::{Anywhere, AnywhereAndIf, Http, Location};
use DefaultValue::{Derived, Literal, Nothing};
use EnvoyScope::{Filter, FilterOrRoute, None, On, Route};
use ValueKind::{Answers, Credentials, Flag, Line, Lines, Methods, Of, OfOr, OfThen, OneOrTwo};
use ValueKind::{Rate, Rows, Text, Two, Types, Valid, Word, Words};

/// One row of the table of settings: its names, its values, and the contexts of each host that
/// allow it.
pub(super) struct Setting {
    /// Name in nginx without the prefix `sszip_`; `enable` is the directive `sszip`.
    pub name: &'static str,
    /// Short description.
    pub about: &'static str,
    pub takes: ValueKind,
    /// Arguments in the syntax of nginx, one text per form. If empty, they are derived from
    /// `takes`.
    pub syntax: &'static [&'static str],
    pub default: DefaultValue,
    pub context: Context,
    pub envoy: EnvoyScope,
    /// The version that introduced the setting.
    pub since: &'static str,
}

/// The syntax of a setting's values.
pub(super) enum ValueKind {
    Flag,
    Of(Range),
    /// A number, or the given word.
    OfOr(Range, &'static str),
    /// A number, optionally followed by the given word.
    OfThen(Range, &'static str),
    /// One value, optionally followed by another.
    OneOrTwo(Range, Range),
    Two(Range, Range),
    Word(&'static [&'static str]),
    /// One or more of the words.
    Words(fn() -> Vec<&'static str>),
    Text,
    /// A line of words that the documentation of the setting describes.
    Line,
    /// One line or several.
    Lines,
    Types,
    Valid,
    Methods,
    /// A method, and a size.
    Answers,
    Credentials,
    Rows,
    Rate,
}

/// The default of a setting, as the documentation describes it.
pub(super) enum DefaultValue {
    Nothing,
    /// The default is equal to these values.
    Literal(&'static [&'static str]),
    /// The default is derived from other settings, as this text describes.
    Derived(&'static str),
}

/// The contexts of nginx's configuration that allow a setting.
#[derive(Clone, Copy)]
pub(super) enum Context {
    Anywhere,
    AnywhereAndIf,
    Http,
    Location,
}

/// The parts of Envoy's configuration that allow a setting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EnvoyScope {
    FilterOrRoute,
    /// A switch whose default is on in Envoy.
    On,
    Filter,
    Route,
    None,
}

const ANYWHERE: Setting = Setting {
    name: "",
    about: "",
    takes: Text,
    syntax: &[],
    default: Nothing,
    context: Anywhere,
    envoy: FilterOrRoute,
    since: "0.1.0",
};

/// In the order of the documentation.
pub(super) const SETTINGS: &[Setting] = &[
    Setting {
        name: "enable",
        about: "The switch of everything else.",
        takes: Flag,
        default: Literal(&["off"]),
        context: AnywhereAndIf,
        envoy: On,
        ..ANYWHERE
    },
    Setting {
        name: "types",
        about: "The media types to compress.",
        takes: Types,
        syntax: &["TYPE ..."],
        default: Literal(&["application/json +json application/javascript text/*"]),
        ..ANYWHERE
    },
    Setting {
        name: "min_length",
        about: "Shorter answers go out as they are.",
        takes: Of(MIN_LENGTHS),
        default: Literal(&["1k"]),
        ..ANYWHERE
    },
    Setting {
        name: "comp_level",
        about: "libdeflate's level.",
        takes: Of(COMP_LEVELS),
        default: Literal(&["1"]),
        ..ANYWHERE
    },
    Setting {
        name: "max_oneshot",
        about: "Longer answers are compressed as they come.",
        takes: Of(MAX_ONESHOTS),
        default: Literal(&["16m"]),
        ..ANYWHERE
    },
    Setting {
        name: "hold",
        about: "How much of an answer without a length is held, and how long.",
        takes: OneOrTwo(HOLDS, HOLD_TIMES),
        default: Literal(&["64k 5ms"]),
        ..ANYWHERE
    },
    Setting {
        name: "stream_level",
        about: "How hard streams are compressed.",
        takes: Of(STREAM_LEVELS),
        default: Literal(&["1"]),
        ..ANYWHERE
    },
    Setting {
        name: "buffers",
        about: "The output buffers of a stream, where the host has none.",
        takes: Two(BUFFERS, BUFFER_SIZES),
        default: Literal(&["2 6k"]),
        ..ANYWHERE
    },
    Setting {
        name: "memory",
        about: "What the process may hold in bodies.",
        takes: Of(MEMORIES),
        default: Literal(&["256m"]),
        ..ANYWHERE
    },
    Setting {
        name: "upstream_encoding",
        about: "What the node is asked for.",
        takes: Word(ENCODINGS),
        default: Literal(&["identity"]),
        ..ANYWHERE
    },
    Setting {
        name: "request_decoding",
        about: "What is done with requests that are compressed.",
        takes: Word(DECODINGS),
        default: Literal(&["auto"]),
        ..ANYWHERE
    },
    Setting {
        name: "thread_pool",
        about: "The threads for large answers.",
        takes: Text,
        syntax: &["NAME | off"],
        default: Literal(&["default"]),
        envoy: None,
        ..ANYWHERE
    },
    Setting {
        name: "ssz",
        about: "SSZ from a node that has JSON only, and the other way round.",
        takes: Flag,
        default: Literal(&["off"]),
        ..ANYWHERE
    },
    Setting {
        name: "ssz_preset",
        about: "The preset of the chain.",
        takes: Word(PRESETS),
        default: Literal(&["auto"]),
        ..ANYWHERE
    },
    Setting {
        name: "ssz_max_size",
        about: "Longer SSZ is not made, nor read.",
        takes: Of(MAX_SIZES),
        default: Literal(&["512m"]),
        ..ANYWHERE
    },
    Setting {
        name: "ssz_hold",
        about: "How much of the node's JSON is kept beside what is made of it.",
        takes: Of(SSZ_HOLDS),
        default: Literal(&["4m"]),
        ..ANYWHERE
    },
    Setting {
        name: "ssz_concurrency",
        about: "How many long answers are made another format of at a time.",
        takes: OfOr(CONCURRENCIES, "off"),
        default: Literal(&["8"]),
        ..ANYWHERE
    },
    Setting {
        name: "ssz_request",
        about: "What becomes of SSZ that clients send.",
        takes: Word(REQUESTS),
        default: Literal(&["auto"]),
        ..ANYWHERE
    },
    Setting {
        name: "ssz_witness",
        about: "Where the node gives the witness of a payload.",
        takes: Word(WITNESSES),
        default: Literal(&["off"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache",
        about: "Whether answers are kept, and given again.",
        takes: Flag,
        default: Literal(&["off"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_get",
        about: "Which GET requests are cached: those of the Beacon API, or all that RFC 9111 allows.",
        takes: Word(GETS),
        default: Literal(&["beacon"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_namespace",
        about: "The name of the chain: what is stored is shared by all that have it.",
        takes: Text,
        syntax: &["TEXT"],
        default: Derived("made of where the request goes, see below"),
        ..ANYWHERE
    },
    Setting {
        name: "cache_valid",
        about: "For how long answers of a class, or of a method, are kept.",
        takes: Valid,
        syntax: &["CLASS | METHOD TIME"],
        default: Literal(&["immutable 1h", "unfinalized 2s", "tip 1s", "nothing 500ms", "config 1m"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_method",
        about: "What answers of a method depend on.",
        takes: Rows,
        syntax: &["METHOD block=p[N] | block=p[N].MEMBER [block=result.MEMBER]", "METHOD block=result.MEMBER | block=result | range=p[N] | transaction=p[0]", "METHOD class=immutable | tip | config | none"],
        ..ANYWHERE
    },
    Setting {
        name: "cache_memory",
        about: "What stored answers may take in memory.",
        takes: Of(CACHE_MEMORIES),
        default: Literal(&["128m"]),
        context: Http,
        ..ANYWHERE
    },
    Setting {
        name: "cache_max_entry",
        about: "Longer answers are not stored.",
        takes: Of(MAX_ENTRIES),
        default: Literal(&["16m"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_max_request",
        about: "Longer requests are not looked up.",
        takes: Of(MAX_REQUESTS),
        default: Literal(&["64k"]),
        ..ANYWHERE
    },
    Setting {
        name: "batch_max",
        about: "Longer batches are not looked up, or denied.",
        takes: OfThen(BATCHES, "deny"),
        default: Literal(&["100"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_credentials",
        about: "What fields that say who asks mean to the cache.",
        takes: Credentials,
        syntax: &["bypass | ignore | key [FIELD ...]"],
        default: Literal(&["bypass"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_bypass",
        about: "When the node is asked though there is a stored answer.",
        takes: Text,
        syntax: &["TEXT ..."],
        envoy: None,
        ..ANYWHERE
    },
    Setting {
        name: "no_cache",
        about: "When an answer is not stored.",
        takes: Text,
        syntax: &["TEXT ..."],
        envoy: None,
        ..ANYWHERE
    },
    Setting {
        name: "cache_use_stale",
        about: "When an answer that has expired may be sent.",
        takes: Words(use_stale::words),
        syntax: &["off | error | timeout | invalid_header | updating |\nhttp_500 | http_502 | http_503 | http_504 |\nhttp_403 | http_404 | http_429 ..."],
        default: Literal(&["off"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_background_update",
        about: "Whether who would fetch a new one gets the one that has expired, too.",
        takes: Flag,
        default: Literal(&["off"]),
        ..ANYWHERE
    },
    Setting {
        name: "verify",
        about: "Of how many hits the node is asked again, and whether what is wrong is purged.",
        takes: Rate,
        syntax: &["off | RATE% [purge]"],
        default: Literal(&["off"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_lock",
        about: "Whether one request at a time asks for the same thing.",
        takes: Flag,
        default: Literal(&["on"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_lock_timeout",
        about: "For how long the others wait.",
        takes: Of(LOCK_TIMEOUTS),
        default: Literal(&["5s"]),
        ..ANYWHERE
    },
    Setting {
        name: "cache_path",
        about: "The folder of the store, and what it may take.",
        takes: Line,
        syntax: &["PATH [max_size=SIZE] [memory=SIZE] [inactive=TIME]\n[recompress=on|off]"],
        context: Http,
        envoy: Filter,
        ..ANYWHERE
    },
    Setting {
        name: "cache_owner",
        about: "The socket of the process that has the store.",
        takes: Text,
        syntax: &["unix:PATH"],
        context: Http,
        envoy: Filter,
        ..ANYWHERE
    },
    Setting {
        name: "cache_lookup_timeout",
        about: "For how long a look-up in the store is waited for.",
        takes: Of(LOOKUP_TIMEOUTS),
        default: Literal(&["20ms"]),
        context: Http,
        envoy: Filter,
        ..ANYWHERE
    },
    Setting {
        name: "cache_head",
        about: "The node at which the chain is followed, and how.",
        takes: Lines,
        syntax: &["URL [interval=TIME] [finality=tag|depth:N]\n[api=execution|beacon] [header=NAME:VALUE ...]\n[ca=FILE] [namespace=NAME]", "off"],
        ..ANYWHERE
    },
    Setting {
        name: "cache_purge",
        about: "Requests purge what their query says.",
        takes: Flag,
        default: Literal(&["off"]),
        context: Location,
        envoy: Route,
        ..ANYWHERE
    },
    Setting {
        name: "status",
        about: "Requests ask how it all goes: a page, JSON, or metrics.",
        takes: Flag,
        default: Literal(&["off"]),
        context: Location,
        envoy: Route,
        ..ANYWHERE
    },
    Setting {
        name: "method",
        about: "What may be called, and what may not.",
        takes: Methods,
        syntax: &["allow | deny | limit=N METHOD | PREFIX* ..."],
        ..ANYWHERE
    },
    Setting {
        name: "max_answer",
        about: "How long the answers of a method may be.",
        takes: Answers,
        syntax: &["METHOD | PREFIX* SIZE"],
        ..ANYWHERE
    },
    Setting {
        name: "upgrade",
        about: "Where calls are judged, the protocol that connections may switch to.",
        takes: Word(UPGRADES),
        default: Literal(&["off"]),
        ..ANYWHERE
    },
];
