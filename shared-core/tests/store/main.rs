//! The store on a real RocksDB in temporary folders: its entries after restarts, kills, power
//! cuts, damage and full disks.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

mod age;
mod bounds;
mod child;
mod crash;
mod damage;
mod disk;
mod entries;
#[cfg(feature = "faults")]
mod power;
mod purge_checks;
#[cfg(feature = "faults")]
mod steps;
mod support;
#[path = "../support/tier.rs"]
mod tier;
