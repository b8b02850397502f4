//! SSZ in an exchange: conversion of the response's body, calls whose results are SSZ, and probes
//! of the node.

pub(super) mod call_result;
pub(super) mod conversion;
mod node_probes;
pub(super) mod transcode;
