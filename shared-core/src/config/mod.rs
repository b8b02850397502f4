//! The configuration that an operator writes, read and validated once.
//!
//! [`RouteConfigBlock`] holds the settings of one configuration block; blocks inherit from the blocks
//! around them. [`RouteConfig`] is the result, with all defaults filled in. Names are the same in
//! every host: the field `min_length` is the directive `sszip_min_length` in nginx and `min_length`
//! in Envoy.

mod cache;
pub mod directive_page;
pub mod endpoint;
mod error_entry;
#[cfg(unix)]
pub mod files;
mod filter_detection;
pub mod fleet;
pub mod head_source;
pub mod head_sources;
pub mod json_schema;
pub mod json_settings;
mod log_range;
pub mod log_split;
mod log_split_pauses;
mod method_names;
pub mod node_capabilities;
mod policy;
mod rejected_media_types;
mod request_decoding;
mod response_coding;
pub mod sandbox;
pub mod setting_error;
mod settings;
mod ssz;
pub mod store;
mod suggest;
mod upstream_codings;
pub mod upstreams;
pub mod validated;
mod values;
mod verify;

use std::sync::Arc;

use crate::cache::process::ProcessResources;
use crate::negotiate::media_type::MediaTypeSet;
use crate::ssz::Preset;
use crate::transcode;
use crate::zstd::{ZstdLevel, MAX_ZSTD_LEVEL};

pub use cache::{CacheConfig, CacheableGetRequests};
pub use filter_detection::BodyFilterDetection;
use method_names::CaseSensitivity;
pub use policy::CallAccessPolicy;
pub use request_decoding::{RequestDecompressionMode, RequestDecompressionPolicy};
pub use ssz::{NodeWitnessProtocol, SszConfig, SszRequestMode};
pub use upstream_codings::UnrequestedCodingDetection;
use upstreams::RouteUpstreamIdentity;
use values::{
    inherit_unset, invalid_value_error, parse_flag, set_once, single_directive_value,
    DirectiveValueRange, DirectiveValueUnit, GIB, KIB, MIB,
};
pub use values::{DirectiveError, DirectiveLocation};
pub use verify::{HitVerificationConfig, VERIFY_ALL_RATE as ALL_HITS};

/// The value of `upstream_encoding`: the `Accept-Encoding` of upstream requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamAcceptEncoding {
    /// `Accept-Encoding: identity`, independent of the client.
    Identity,
    /// The client's `Accept-Encoding`.
    Pass,
}

/// The number and the size of the output buffers of one response that is compressed while it
/// arrives (`buffers`). The node is delayed while a client leaves all of them unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputBufferLimits {
    /// Maximum number of buffers.
    pub number: u32,
    /// Size of a buffer in bytes.
    pub size: u32,
}

/// The settings of one route (nginx: location) after inheritance, with defaults, and the state that
/// its requests share.
#[derive(Clone, Debug)]
pub struct RouteConfig {
    /// Whether sszip is enabled.
    pub enable: bool,
    /// Media types to compress.
    pub types: MediaTypeSet,
    /// Minimum length of a body that is compressed, in bytes.
    pub min_length: u64,
    /// Compression level of libdeflate, 0 to 12.
    pub comp_level: u8,
    /// Maximum length of a body that is buffered and compressed in one shot, in bytes. Longer
    /// bodies are streamed.
    pub max_oneshot: u64,
    /// Bytes of a body of unknown length that are buffered before it is streamed.
    pub hold: u64,
    /// Milliseconds for which such a body is buffered at most.
    pub hold_ms: u64,
    /// Compression level of streams, 1 to 3.
    pub stream_level: u8,
    /// Whether zstd is sent to clients that name it.
    pub zstd: bool,
    /// Level of one-shot compression with zstd, 1 to 19.
    pub zstd_level: ZstdLevel,
    /// Memory limit of the whole process in bytes, above which bodies of this route are sent
    /// unchanged.
    pub memory: u64,
    /// The content codings that upstream requests accept.
    pub upstream_encoding: UpstreamAcceptEncoding,
    /// Treatment of compressed requests.
    pub coded_requests: RequestDecompressionPolicy,
    /// Buffers for streams in hosts that have none of their own.
    pub buffers: OutputBufferLimits,
    /// Settings of the cache.
    pub cache: CacheConfig,
    /// The policy, or `None` if all calls are allowed.
    pub active_policy: Option<Arc<CallAccessPolicy>>,
    /// Whether a QUERY is handled as the POST of the same call.
    pub query: bool,
    /// Settings of transcoding.
    pub ssz: SszConfig,
    /// Headers of upstream responses, in lower case, that the host hides from clients: they are
    /// applied and stored, and never sent.
    pub hidden: Arc<[Vec<u8>]>,
    /// Detected body filters of the host.
    pub filters: BodyFilterDetection,
    /// Detected content codings of the node.
    pub upstream_codings: UnrequestedCodingDetection,
    /// The upstream of requests.
    pub destination: RouteUpstreamIdentity,
    /// State that all routes of the process share.
    pub process: ProcessResources,
}

/// The settings that one configuration block (nginx: `server` or `location`; Envoy: filter or
/// route) sets itself, before inheritance; `None` where it sets none.
#[derive(Clone, Debug, Default)]
pub struct RouteConfigBlock {
    enable: Option<bool>,
    types: Option<MediaTypeSet>,
    min_length: Option<u64>,
    comp_level: Option<u8>,
    max_oneshot: Option<u64>,
    hold: Option<(u64, u64)>,
    stream_level: Option<u8>,
    zstd: Option<bool>,
    zstd_level: Option<ZstdLevel>,
    memory: Option<u64>,
    upstream_encoding: Option<UpstreamAcceptEncoding>,
    request_decoding: Option<RequestDecompressionMode>,
    buffers: Option<OutputBufferLimits>,
    hidden: Arc<[Vec<u8>]>,
    cache: cache::CacheConfigBlock,
    policy: policy::AccessPolicyConfigBlock,
    query: Option<bool>,
    ssz: ssz::SszConfigBlock,
    /// Warning about the directive that was set last.
    warning: Option<String>,
}

/// Default time for which a body of unknown length is buffered, in milliseconds.
const DEFAULT_HOLD_MS: u64 = 5;

/// Compression levels of libdeflate.
const COMP_LEVEL_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 0,
    most: 12,
    unit: DirectiveValueUnit::Number,
};
const MIN_LENGTH_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 0,
    most: GIB,
    unit: DirectiveValueUnit::Bytes,
};
/// A buffered body needs twice its length for a moment, and the trailer of gzip counts 32 bits: 1
/// GiB is far below both limits.
const MAX_ONESHOT_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: KIB,
    most: GIB,
    unit: DirectiveValueUnit::Bytes,
};
const HOLD_SIZE_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 0,
    most: 16 * MIB,
    unit: DirectiveValueUnit::Bytes,
};
const HOLD_TIME_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 0,
    most: 60_000,
    unit: DirectiveValueUnit::Milliseconds,
};
const STREAM_LEVEL_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 1,
    most: 3,
    unit: DirectiveValueUnit::Number,
};
const ZSTD_LEVEL_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 1,
    most: MAX_ZSTD_LEVEL as u64,
    unit: DirectiveValueUnit::Number,
};
const MEMORY_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 0,
    most: 1 << 40,
    unit: DirectiveValueUnit::Bytes,
};
const BUFFER_COUNT_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 1,
    most: 1024,
    unit: DirectiveValueUnit::Number,
};
/// The smallest buffer has room for a flush and a trailer.
const BUFFER_SIZE_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 64,
    most: MIB,
    unit: DirectiveValueUnit::Bytes,
};

impl RouteConfig {
    /// Whether responses on this route are stored and looked up.
    pub fn is_cache_enabled(&self) -> bool {
        self.enable && self.cache.enable
    }

    /// Whether bodies on this route are transcoded between JSON and SSZ.
    pub fn is_transcoding_enabled(&self) -> bool {
        self.enable && self.ssz.enable
    }

    /// Returns the policy, if sszip is enabled on the route and rules are configured.
    pub fn active_call_policy(&self) -> Option<&Arc<CallAccessPolicy>> {
        self.active_policy.as_ref().filter(|_| self.enable)
    }

    /// Whether a QUERY on this route is handled as the POST of the same call.
    pub fn is_query_enabled(&self) -> bool {
        self.enable && self.query
    }

    /// Whether request bodies may be read before they are forwarded.
    pub fn may_read_request_body(&self) -> bool {
        let evaluates = self.active_policy.is_some() || self.query;
        let reads = self.cache.enable || self.ssz.enable || evaluates;
        self.enable && (reads || self.coded_requests.is_decoding_enabled())
    }
}

impl RouteConfigBlock {
    /// Sets one directive of this block to `values`.
    ///
    /// # Errors
    /// The [`DirectiveError`] contains the allowed values; nothing is changed then.
    pub fn set_directive(&mut self, name: &str, values: &[&[u8]]) -> Result<(), DirectiveError> {
        self.set_directive_with_location(name, values, DirectiveLocation::default())
    }

    /// Sets one directive as [`set_directive`](Self::set_directive) does, and records its position
    /// in the configuration for messages.
    ///
    /// # Errors
    /// The errors of [`set_directive`](Self::set_directive).
    pub fn set_directive_with_location(
        &mut self,
        name: &str,
        values: &[&[u8]],
        source: DirectiveLocation<'_>,
    ) -> Result<(), DirectiveError> {
        match name {
            "enable" => set_once(&mut self.enable, || {
                parse_flag(single_directive_value(values)?)
            }),
            "types" => set_once(&mut self.types, || parse_media_types(values)),
            "min_length" => set_once(&mut self.min_length, || {
                MIN_LENGTH_RANGE.parse_in_range(single_directive_value(values)?)
            }),
            "comp_level" => set_once(&mut self.comp_level, || {
                COMP_LEVEL_RANGE
                    .parse_in_range(single_directive_value(values)?)
                    .map(|level| level as u8)
            }),
            "max_oneshot" => set_once(&mut self.max_oneshot, || {
                MAX_ONESHOT_RANGE.parse_in_range(single_directive_value(values)?)
            }),
            "hold" => set_once(&mut self.hold, || match values {
                [size] => Ok((HOLD_SIZE_RANGE.parse_in_range(size)?, DEFAULT_HOLD_MS)),
                [size, time] => Ok((
                    HOLD_SIZE_RANGE.parse_in_range(size)?,
                    HOLD_TIME_RANGE.parse_in_range(time)?,
                )),
                _ => Err(DirectiveError::OneOrTwoValues),
            }),
            "stream_level" => set_once(&mut self.stream_level, || {
                STREAM_LEVEL_RANGE
                    .parse_in_range(single_directive_value(values)?)
                    .map(|level| level as u8)
            }),
            "zstd" => set_once(&mut self.zstd, || {
                parse_flag(single_directive_value(values)?)
            }),
            "zstd_level" => set_once(&mut self.zstd_level, || {
                ZSTD_LEVEL_RANGE
                    .parse_in_range(single_directive_value(values)?)
                    .map(|level| level as ZstdLevel)
            }),
            "memory" => set_once(&mut self.memory, || {
                MEMORY_RANGE.parse_in_range(single_directive_value(values)?)
            }),
            "upstream_encoding" => set_once(&mut self.upstream_encoding, || {
                parse_upstream_encoding(single_directive_value(values)?)
            }),
            "request_decoding" => set_once(&mut self.request_decoding, || {
                parse_request_decoding(single_directive_value(values)?)
            }),
            "buffers" => set_once(&mut self.buffers, || parse_stream_buffers(values)),
            "method" => self.set_method_rules(values),
            "upgrade" => self.policy.set_allowed_upgrade_protocol(values),
            "max_answer" => self.set_response_limit(values),
            "logs_max_range" => self.policy.set_block_range_limit(values),
            "query" => set_once(&mut self.query, || {
                parse_flag(single_directive_value(values)?)
            }),
            _ if name == "ssz" || name.starts_with("ssz_") => {
                self.ssz.set_ssz_directive(name, values)
            }
            _ => self.cache.set_cache_directive(name, values, source),
        }
    }

    /// Adds a method rule, and records a warning if one of its patterns matches no known method.
    fn set_method_rules(&mut self, values: &[&[u8]]) -> Result<(), DirectiveError> {
        self.policy.set_method_rules(values)?;
        // case sensitivity of the rules
        let case = match values {
            [b"allow", ..] => CaseSensitivity::Exact,
            _ => CaseSensitivity::Any,
        };
        let patterns = values.get(1..).unwrap_or_default();
        self.warn_unknown_methods(patterns, case);
        Ok(())
    }

    /// Adds the response limit of a method, and records a warning if its pattern matches no known
    /// method.
    fn set_response_limit(&mut self, values: &[&[u8]]) -> Result<(), DirectiveError> {
        self.policy.set_method_response_limit(values)?;
        self.warn_unknown_methods(values.get(..1).unwrap_or_default(), CaseSensitivity::Any);
        Ok(())
    }

    fn warn_unknown_methods(&mut self, patterns: &[&[u8]], case: CaseSensitivity) {
        let cache = &self.cache;
        self.warning = method_names::unknown_methods_warning(patterns, case, |name| {
            cache.has_method_rule(name)
        });
    }

    /// Returns the warning about the directive that was set last, if it is allowed but suspicious.
    /// It is returned once.
    pub fn take_directive_warning(&mut self) -> Option<String> {
        let warning = self.warning.take();
        warning.or_else(|| self.cache.warning.take())
    }

    /// Sets the headers of upstream responses that the host's own configuration hides. They are not
    /// inherited.
    pub fn set_hidden_headers<'a>(&mut self, names: impl Iterator<Item = &'a [u8]>) {
        self.hidden = names.map(<[u8]>::to_ascii_lowercase).collect();
    }

    /// Copies the settings that this block leaves unset from the enclosing block.
    pub fn inherit_unset_from(&mut self, outer: &RouteConfigBlock) {
        inherit_unset(&mut self.enable, &outer.enable);
        inherit_unset(&mut self.types, &outer.types);
        inherit_unset(&mut self.min_length, &outer.min_length);
        inherit_unset(&mut self.comp_level, &outer.comp_level);
        inherit_unset(&mut self.max_oneshot, &outer.max_oneshot);
        inherit_unset(&mut self.hold, &outer.hold);
        inherit_unset(&mut self.stream_level, &outer.stream_level);
        inherit_unset(&mut self.zstd, &outer.zstd);
        inherit_unset(&mut self.zstd_level, &outer.zstd_level);
        inherit_unset(&mut self.memory, &outer.memory);
        inherit_unset(&mut self.upstream_encoding, &outer.upstream_encoding);
        inherit_unset(&mut self.request_decoding, &outer.request_decoding);
        inherit_unset(&mut self.buffers, &outer.buffers);
        self.cache.inherit_unset_from(&outer.cache);
        self.policy.inherit_unset_from(&outer.policy);
        inherit_unset(&mut self.query, &outer.query);
        self.ssz.inherit_unset_from(&outer.ssz);
    }

    /// Returns the settings of a route that has this block, with defaults where they are unset.
    pub fn resolve_route_config(&self, process: impl Into<ProcessResources>) -> RouteConfig {
        let (hold, hold_ms) = self.hold.unwrap_or((64 * KIB, DEFAULT_HOLD_MS));
        let ssz = self.ssz.resolve_ssz_config();
        if ssz.enable {
            // compiled now, so that no client waits for it
            transcode::prepare_schemas(ssz.preset.unwrap_or(Preset::Mainnet));
        }
        RouteConfig {
            hold,
            hold_ms,
            stream_level: self.stream_level.unwrap_or(1),
            zstd: self.zstd.unwrap_or(false),
            zstd_level: self.zstd_level.unwrap_or(1),
            enable: self.enable.unwrap_or(false),
            types: self.types.clone().unwrap_or_default(),
            min_length: self.min_length.unwrap_or(KIB),
            comp_level: self.comp_level.unwrap_or(1),
            max_oneshot: self.max_oneshot.unwrap_or(16 * MIB),
            memory: self.memory.unwrap_or(256 * MIB),
            upstream_encoding: self
                .upstream_encoding
                .unwrap_or(UpstreamAcceptEncoding::Identity),
            coded_requests: RequestDecompressionPolicy::new(
                self.request_decoding.unwrap_or_default(),
            ),
            buffers: self.buffers.unwrap_or(OutputBufferLimits {
                number: 2,
                size: 6144,
            }),
            hidden: Arc::clone(&self.hidden),
            filters: BodyFilterDetection::default(),
            upstream_codings: UnrequestedCodingDetection::default(),
            destination: RouteUpstreamIdentity::default(),
            cache: self.cache.resolve_cache_config(),
            active_policy: self
                .policy
                .resolve_configured_policy(self.cache.batch_denial_limit()),
            query: self.query.unwrap_or(false),
            ssz,
            process: process.into(),
        }
    }
}

const UPSTREAM_ENCODING_WORDS: &[&str] = &["identity", "pass"];
const REQUEST_DECODING_WORDS: &[&str] = &["off", "auto", "always"];

fn parse_upstream_encoding(value: &[u8]) -> Result<UpstreamAcceptEncoding, DirectiveError> {
    match value {
        b"identity" => Ok(UpstreamAcceptEncoding::Identity),
        b"pass" => Ok(UpstreamAcceptEncoding::Pass),
        _ => Err(invalid_value_error(value, "\"identity\" or \"pass\"")),
    }
}

fn parse_request_decoding(value: &[u8]) -> Result<RequestDecompressionMode, DirectiveError> {
    match value {
        b"off" => Ok(RequestDecompressionMode::Off),
        b"auto" => Ok(RequestDecompressionMode::Auto),
        b"always" => Ok(RequestDecompressionMode::Always),
        _ => Err(invalid_value_error(
            value,
            "\"off\", \"auto\" or \"always\"",
        )),
    }
}

/// Parses the number and the size in bytes of the output buffers, as nginx's `gzip_buffers` has
/// them.
fn parse_stream_buffers(values: &[&[u8]]) -> Result<OutputBufferLimits, DirectiveError> {
    let [number, size] = values else {
        return Err(DirectiveError::TwoValues);
    };
    let read = |range: DirectiveValueRange, value| {
        let number = range.parse_in_range(value).ok();
        number
            .and_then(|number| u32::try_from(number).ok())
            .ok_or_else(|| {
                invalid_value_error(
                    value,
                    format!("{BUFFER_COUNT_RANGE} and {BUFFER_SIZE_RANGE}"),
                )
            })
    };
    Ok(OutputBufferLimits {
        number: read(BUFFER_COUNT_RANGE, number)?,
        size: read(BUFFER_SIZE_RANGE, size)?,
    })
}

fn parse_media_types(values: &[&[u8]]) -> Result<MediaTypeSet, DirectiveError> {
    if values.is_empty() {
        return Err(invalid_value_error(b"", "at least one media type"));
    }
    MediaTypeSet::parse_media_type_patterns(values.iter().copied()).map_err(|word| {
        invalid_value_error(
            word,
            "\"type/subtype\", \"type/*\", \"+suffix\" or \"*\", without parameters",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::{RouteConfigBlock, UpstreamAcceptEncoding};
    use crate::memory::MemoryBudget;
    use crate::request_coding::SupportedContentCoding;

    fn set(directives: &mut RouteConfigBlock, line: &str) -> Result<(), String> {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        let values: Vec<&[u8]> = words.map(str::as_bytes).collect();
        directives
            .set_directive(name, &values)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn directives_set_their_fields_of_the_config() {
        let mut directives = RouteConfigBlock::default();
        for line in [
            "enable on",
            "types text/* application/json",
            "min_length 2k",
            "comp_level 12",
            "max_oneshot 1m",
            "memory 1g",
            "upstream_encoding pass",
            "request_decoding always",
            "buffers 8 4k",
        ] {
            set(&mut directives, line).unwrap();
        }
        let config = directives.resolve_route_config(MemoryBudget::new());
        assert!(config.enable && config.types.contains_media_type(b"text/css"));
        assert_eq!((config.min_length, config.comp_level), (2048, 12));
        assert_eq!((config.max_oneshot, config.memory), (1 << 20, 1 << 30));
        assert_eq!(config.upstream_encoding, UpstreamAcceptEncoding::Pass);
        assert!(config
            .coded_requests
            .is_request_coding_decoded(SupportedContentCoding::Gzip));
        assert_eq!((config.buffers.number, config.buffers.size), (8, 4096));
    }

    #[test]
    fn invalid_values_are_rejected_with_the_allowed_ones() {
        for (line, error) in [
            (
                "enable yes",
                "has an invalid value \"yes\": it must be \"on\" or \"off\"",
            ),
            (
                "comp_level 13",
                "has an invalid value \"13\": it must be a number from 0 to 12",
            ),
            (
                "comp_level -1",
                "has an invalid value \"-1\": it must be a number from 0 to 12",
            ),
            (
                "comp_level +1",
                "has an invalid value \"+1\": it must be a number from 0 to 12",
            ),
            (
                "comp_level 1k",
                "has an invalid value \"1k\": it must be a number from 0 to 12",
            ),
            ("comp_level 1 2", "takes exactly one value"),
            (
                "min_length 2g",
                "has an invalid value \"2g\": it must be a size from 0 to 1g",
            ),
            (
                "min_length ",
                "has an invalid value \"\": it must be a size from 0 to 1g",
            ),
            (
                "max_oneshot 1",
                "has an invalid value \"1\": it must be a size from 1k to 1g",
            ),
            (
                "max_oneshot 99999999999999999999k",
                "has an invalid value \"99999999999999999999k\": it must be a size from 1k to 1g",
            ),
            (
                "memory x",
                "has an invalid value \"x\": it must be a size from 0 to 1024g",
            ),
            (
                "upstream_encoding gzip",
                "has an invalid value \"gzip\": it must be \"identity\" or \"pass\"",
            ),
            (
                "request_decoding on",
                "has an invalid value \"on\": it must be \"off\", \"auto\" or \"always\"",
            ),
            (
                "types json",
                "has an invalid value \"json\": it must be \"type/subtype\", \"type/*\", \
                 \"+suffix\" or \"*\", without parameters",
            ),
            (
                "types",
                "has an invalid value \"\": it must be at least one media type",
            ),
            (
                "buffers 0 4k",
                "has an invalid value \"0\": it must be a number from 1 to 1024 and a size from \
                 64 to 1m",
            ),
            (
                "buffers 8 63",
                "has an invalid value \"63\": it must be a number from 1 to 1024 and a size from \
                 64 to 1m",
            ),
            ("buffers 8", "takes exactly two values"),
            ("level 1", "is an unknown setting"),
        ] {
            assert_eq!(
                set(&mut RouteConfigBlock::default(), line),
                Err(error.into())
            );
        }
    }

    #[test]
    fn warning_is_returned_once_for_an_unknown_method() {
        let mut directives = RouteConfigBlock::default();
        for line in [
            "cache_valid eth_gasPrice 3s",
            "cache_valid eth_syncing 3s",
            "cache_valid config 3s",
        ] {
            set(&mut directives, line).unwrap();
            assert_eq!(directives.take_directive_warning(), None, "{line}");
        }
        set(&mut directives, "cache_valid eth_gasPrise 3s").unwrap();
        let warning = directives.take_directive_warning().unwrap();
        assert!(
            warning.starts_with(
                "names the unknown method \"eth_gasPrise\"; did you mean \"eth_gasPrice\"?"
            ),
            "{warning}"
        );
        assert_eq!(directives.take_directive_warning(), None);
        for method in [
            "anvil_mine",
            "evm_revert",
            "mev_sendBundle",
            "eth_submitWork",
        ] {
            let refused = set(&mut directives, &format!("cache_valid {method} 3s")).unwrap_err();
            assert!(refused.contains("without side effects"), "{refused}");
            assert_eq!(directives.take_directive_warning(), None);
        }
    }

    #[test]
    fn duplicate_directive_is_rejected_and_changes_nothing() {
        let mut directives = RouteConfigBlock::default();
        set(&mut directives, "comp_level 3").unwrap();
        assert_eq!(
            set(&mut directives, "comp_level 4"),
            Err("is duplicate".into())
        );
        assert_eq!(
            directives
                .resolve_route_config(MemoryBudget::new())
                .comp_level,
            3
        );
    }

    #[test]
    fn inner_block_overrides_and_inherits_the_rest() {
        let mut outer = RouteConfigBlock::default();
        set(&mut outer, "enable on").unwrap();
        set(&mut outer, "comp_level 9").unwrap();
        let mut inner = RouteConfigBlock::default();
        set(&mut inner, "comp_level 2").unwrap();
        inner.inherit_unset_from(&outer);
        let config = inner.resolve_route_config(MemoryBudget::new());
        assert!(config.enable);
        assert_eq!((config.comp_level, config.min_length), (2, 1024));
    }
}
