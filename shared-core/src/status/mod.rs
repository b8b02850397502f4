//! What an operator sees: what was counted, as a page, as JSON and as OpenMetrics.
//!
//! | file | what it holds |
//! |---|---|
//! | `board` | counters of several workers, in memory that they share |
//! | `times` | the buckets of times |
//! | `report` | what it all comes to, as JSON |
//! | `openmetrics` | the same for Prometheus |
//! | `page.html` | the same for people: it asks for the JSON again and again |

pub mod board;
mod openmetrics;
pub mod report;
pub mod times;

use serde_json::Value;

use self::report::Report;

/// In which of its forms it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Page,
    /// All of it.
    Json,
    /// For Prometheus (OpenMetrics 1.0).
    OpenMetrics,
}

/// Whether a counter is one of many that differ in a word: by mode, reason or method.
pub(crate) fn is_of_family(name: &str) -> bool {
    report::split(name).1.is_some()
}

const PAGE: &str = include_str!("page.html");

impl Format {
    /// What a query asks for (`application/x-www-form-urlencoded`): `format=html`, which it
    /// is without, `json`, or `prometheus`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of(query: &[u8]) -> Result<Self, String> {
        let mut format = Self::Page;
        for (name, value) in form_urlencoded::parse(query) {
            format = match (&*name, &*value) {
                ("format", "html") => Self::Page,
                ("format", "json") => Self::Json,
                ("format", "prometheus") => Self::OpenMetrics,
                ("format", _) => return Err("format must be html, json or prometheus".into()),
                _ => return Err(format!("unknown parameter {name:?}: format= is known")),
            };
        }
        Ok(format)
    }

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Page => "text/html; charset=utf-8",
            Self::Json => "application/json",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The whole of it; `report` makes what is told.
    pub fn write(self, report: impl FnOnce() -> Report) -> String {
        match self {
            Self::Page => PAGE.into(),
            Self::Json => report().json(),
            Self::OpenMetrics => openmetrics::write(report()),
        }
    }

    /// The same of an owner alone, as it says it of itself (docs/owner-protocol.md).
    pub fn write_of_owner(self, owner: Value) -> String {
        match self {
            Self::Page => PAGE.into(),
            Self::Json => format!("{owner:#}\n"),
            Self::OpenMetrics => openmetrics::write_of_owner(owner),
        }
    }

    /// Whether the owner of the store is to be asked for its part.
    pub fn needs_owner(self) -> bool {
        self != Self::Page
    }
}

#[cfg(test)]
mod tests;
