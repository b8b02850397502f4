//! Reports for operators: all metrics as a page, as JSON and as OpenMetrics.
//!
//! | file            | content                                      |
//! |-----------------|----------------------------------------------|
//! | `board`         | counters of several workers in shared memory |
//! | `histogram`     | histograms of durations                      |
//! | `history`       | samples of counters over the last 15 minutes |
//! | `key_samples`   | samples of the keys that clients request     |
//! | `report`        | the report as JSON                           |
//! | `openmetrics`   | the report as OpenMetrics, for Prometheus    |
//! | `fleet_metrics` | the fleet tier as OpenMetrics                |
//! | `page.html`     | the status page, which polls the JSON        |

mod fleet_metrics;
pub mod histogram;
mod history;
pub mod key_samples;
mod metric_writers;
pub mod metrics_board;
mod openmetrics;
pub mod report;

use serde_json::Value;

use self::report::StatusPageReport;

/// The format in which the status location writes the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusReportFormat {
    /// The status page.
    Page,
    /// The complete report.
    Json,
    /// OpenMetrics 1.0, for Prometheus.
    OpenMetrics,
}

/// Returns whether a counter is one of a family whose members differ by mode, reason or method.
pub(crate) fn is_counter_family_member(name: &str) -> bool {
    report::split_counter_name(name).1.is_some()
}

const STATUS_PAGE: &str = include_str!("page.html");

impl StatusReportFormat {
    /// Returns the format in a query (`application/x-www-form-urlencoded`): `format=html`, which is
    /// the default, `json`, or `prometheus`.
    ///
    /// # Errors
    /// The error in the query.
    pub fn from_format_query(query: &[u8]) -> Result<Self, String> {
        let mut format = Self::Page;
        for (name, value) in form_urlencoded::parse(query) {
            format = match (&*name, &*value) {
                ("format", "html") => Self::Page,
                ("format", "json") => Self::Json,
                ("format", "prometheus") => Self::OpenMetrics,
                ("format", _) => return Err("format must be html, json or prometheus".into()),
                _ => return Err(format!("unknown parameter {name:?}; allowed is format=")),
            };
        }
        Ok(format)
    }

    /// Returns the media type of a response in the format.
    pub fn report_media_type(self) -> &'static str {
        match self {
            Self::Page => "text/html; charset=utf-8",
            Self::Json => "application/json",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Formats the report that `report` returns, which is not called for the page.
    pub fn format_status_report(self, report: impl FnOnce() -> StatusPageReport) -> String {
        match self {
            Self::Page => STATUS_PAGE.into(),
            Self::Json => report().to_json(),
            Self::OpenMetrics => openmetrics::write_openmetrics(report()),
        }
    }

    /// Formats the report of an owner alone, from its own JSON (docs/owner-protocol.md).
    pub fn format_owner_report(self, owner: Value) -> String {
        match self {
            Self::Page => STATUS_PAGE.into(),
            Self::Json => format!("{owner:#}\n"),
            Self::OpenMetrics => openmetrics::format_owner_openmetrics(owner),
        }
    }

    /// Whether the format shows the report of the store's owner, which the host must then request.
    pub fn includes_owner_report(self) -> bool {
        self != Self::Page
    }
}

#[cfg(test)]
mod tests;
