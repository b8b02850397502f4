//! Settings of transcoding between JSON and SSZ.

use super::node_capabilities::RouteNodeCapabilities;
use super::rejected_media_types::NodeRejectedBodyKinds;
use super::values::{
    inherit_unset, invalid_value_error, parse_flag, set_once, single_directive_value,
    DirectiveError, DirectiveValueRange, DirectiveValueUnit,
};
use super::values::{GIB, MIB};
use crate::ssz::Preset;

/// The settings of one route for transcoding between JSON and SSZ, with defaults, and the detected
/// capabilities of its nodes.
#[derive(Clone, Debug)]
pub struct SszConfig {
    /// Whether clients receive SSZ from a node that has JSON only, and the other way round.
    pub enable: bool,
    /// The preset of the chain, or `None` if it is probed.
    pub preset: Option<Preset>,
    /// Maximum length of SSZ that is written or read, in bytes.
    pub max_size: u64,
    /// Maximum length of the original that is buffered next to its conversion, so that it can be
    /// sent if the conversion fails, in bytes.
    pub hold: u64,
    /// Maximum number of long responses that the process converts at the same time.
    pub concurrency: usize,
    /// Treatment of request bodies in SSZ.
    pub request: SszRequestMode,
    /// Routes for which the node has refused SSZ.
    pub refused: NodeRejectedBodyKinds,
    /// The protocol over which the node returns witnesses.
    pub witness: NodeWitnessProtocol,
    /// Detected capabilities of the node.
    pub node_capabilities: RouteNodeCapabilities,
}

/// The value of `ssz_witness`: the protocol over which a node returns the witness of a submitted
/// payload. Requests over the other protocol are converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeWitnessProtocol {
    /// Not configured: requests are forwarded unchanged.
    Off,
    /// JSON-RPC, not REST.
    Rpc,
    /// REST, not JSON-RPC.
    Rest,
}

/// The value of `ssz_request`: whether SSZ in request bodies is forwarded, or converted to JSON for
/// the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SszRequestMode {
    /// Bodies are forwarded unchanged.
    Off,
    /// Bodies are forwarded unchanged until the node refuses one.
    Auto,
    /// Bodies are converted to JSON.
    Always,
}

/// The transcoding settings that one configuration block sets itself, before inheritance; `None`
/// where it sets none.
#[derive(Clone, Debug, Default)]
pub(super) struct SszConfigBlock {
    enable: Option<bool>,
    preset: Option<Option<Preset>>,
    max_size: Option<u64>,
    hold: Option<u64>,
    concurrency: Option<usize>,
    request: Option<SszRequestMode>,
    witness: Option<NodeWitnessProtocol>,
}

/// Offsets of SSZ have 32 bits.
pub(super) const SSZ_MAX_SIZE_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 0,
    most: 4095 * MIB,
    unit: DirectiveValueUnit::Bytes,
};
pub(super) const SSZ_HOLD_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 0,
    most: GIB,
    unit: DirectiveValueUnit::Bytes,
};

pub(super) const SSZ_CONCURRENCY_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 1,
    most: 65_535,
    unit: DirectiveValueUnit::Number,
};

impl SszConfigBlock {
    /// Sets `ssz` or a directive whose name starts with `ssz_`, as
    /// [`super::RouteConfigBlock::set_directive`] does.
    pub(super) fn set_ssz_directive(
        &mut self,
        name: &str,
        values: &[&[u8]],
    ) -> Result<(), DirectiveError> {
        match name {
            "ssz" => set_once(&mut self.enable, || {
                parse_flag(single_directive_value(values)?)
            }),
            "ssz_preset" => set_once(&mut self.preset, || {
                parse_preset(single_directive_value(values)?)
            }),
            "ssz_max_size" => set_once(&mut self.max_size, || {
                SSZ_MAX_SIZE_RANGE.parse_in_range(single_directive_value(values)?)
            }),
            "ssz_request" => set_once(&mut self.request, || {
                parse_ssz_request_mode(single_directive_value(values)?)
            }),
            "ssz_witness" => set_once(&mut self.witness, || {
                parse_witness_protocol(single_directive_value(values)?)
            }),
            "ssz_hold" => set_once(&mut self.hold, || {
                SSZ_HOLD_RANGE.parse_in_range(single_directive_value(values)?)
            }),
            "ssz_concurrency" => set_once(&mut self.concurrency, || {
                parse_ssz_concurrency(single_directive_value(values)?)
            }),
            _ => Err(DirectiveError::Unknown),
        }
    }

    pub(super) fn inherit_unset_from(&mut self, outer: &Self) {
        inherit_unset(&mut self.enable, &outer.enable);
        inherit_unset(&mut self.preset, &outer.preset);
        inherit_unset(&mut self.max_size, &outer.max_size);
        inherit_unset(&mut self.hold, &outer.hold);
        inherit_unset(&mut self.concurrency, &outer.concurrency);
        inherit_unset(&mut self.request, &outer.request);
        inherit_unset(&mut self.witness, &outer.witness);
    }

    /// Returns the configuration of the block; unset values have their defaults.
    pub(super) fn resolve_ssz_config(&self) -> SszConfig {
        SszConfig {
            enable: self.enable.unwrap_or(false),
            preset: self.preset.unwrap_or(None),
            max_size: self.max_size.unwrap_or(512 * MIB),
            hold: self.hold.unwrap_or(4 * MIB),
            concurrency: self.concurrency.unwrap_or(8),
            request: self.request.unwrap_or(SszRequestMode::Auto),
            refused: NodeRejectedBodyKinds::default(),
            witness: self.witness.unwrap_or(NodeWitnessProtocol::Off),
            node_capabilities: RouteNodeCapabilities::default(),
        }
    }
}

pub(super) const PRESET_WORDS: &[&str] = &["auto", "mainnet", "minimal", "gnosis"];
pub(super) const SSZ_REQUEST_WORDS: &[&str] = &["off", "auto", "always"];
pub(super) const WITNESS_SOURCE_WORDS: &[&str] = &["off", "rpc", "rest"];

/// Parses the maximum number of concurrent conversions; `off` is `usize::MAX`.
fn parse_ssz_concurrency(value: &[u8]) -> Result<usize, DirectiveError> {
    if value == b"off" {
        return Ok(usize::MAX);
    }
    let number = SSZ_CONCURRENCY_RANGE.parse_in_range(value).ok();
    number
        .and_then(|number| usize::try_from(number).ok())
        .ok_or_else(|| invalid_value_error(value, format!("{SSZ_CONCURRENCY_RANGE} or \"off\"")))
}

fn parse_ssz_request_mode(value: &[u8]) -> Result<SszRequestMode, DirectiveError> {
    match value {
        b"off" => Ok(SszRequestMode::Off),
        b"auto" => Ok(SszRequestMode::Auto),
        b"always" => Ok(SszRequestMode::Always),
        _ => Err(invalid_value_error(
            value,
            "\"off\", \"auto\" or \"always\"",
        )),
    }
}

fn parse_witness_protocol(value: &[u8]) -> Result<NodeWitnessProtocol, DirectiveError> {
    match value {
        b"off" => Ok(NodeWitnessProtocol::Off),
        b"rpc" => Ok(NodeWitnessProtocol::Rpc),
        b"rest" => Ok(NodeWitnessProtocol::Rest),
        _ => Err(invalid_value_error(value, "\"off\", \"rpc\" or \"rest\"")),
    }
}

/// Parses a preset; `auto` is `None`: the preset is probed at the node.
fn parse_preset(value: &[u8]) -> Result<Option<Preset>, DirectiveError> {
    if value == b"auto" {
        return Ok(None);
    }
    let name = std::str::from_utf8(value).unwrap_or_default();
    let allowed = "\"auto\", \"mainnet\", \"minimal\" or \"gnosis\"";
    let preset = name
        .parse()
        .map_err(|_| invalid_value_error(value, allowed))?;
    Ok(Some(preset))
}
