//! The node whose chain is followed for a namespace.

use std::fmt;
use std::path::PathBuf;

/// A node, and how it is asked.
#[derive(Clone, PartialEq, Eq)]
pub struct Head {
    /// `http`, `https`, `ws`, `wss`, or `unix:/path[:/uri]`.
    pub url: String,
    /// How often it is asked. Milliseconds.
    pub interval: u64,
    /// What makes a block final.
    pub finality: Finality,
    /// What it speaks.
    pub api: Api,
    /// Fields that go with each request: name, value.
    pub headers: Vec<(String, String)>,
    /// Who has to have signed its certificate, instead of whom the system
    /// trusts: a file of certificates (PEM).
    pub ca: Option<PathBuf>,
}

/// What makes a block final.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finality {
    /// The node says so.
    #[default]
    Tag,
    /// So many blocks above it.
    Depth(u64),
}

/// What a node speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Api {
    /// JSON-RPC.
    #[default]
    Execution,
    /// The Beacon API.
    Beacon,
}

impl fmt::Debug for Head {
    /// Without the values of fields: they may be secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| &name[..]).collect();
        f.debug_struct("Head")
            .field("url", &self.url)
            .field("interval", &self.interval)
            .field("finality", &self.finality)
            .field("api", &self.api)
            .field("headers", &names)
            .field("ca", &self.ca)
            .finish()
    }
}
