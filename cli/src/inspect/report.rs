//! The report of `inspect`, as text and as JSON.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use serde_json::{json, Value};

use super::cache_status::CacheStatusMember;
use super::explain::{explain_method, explain_reason};
use super::owner_entry::OwnerEntry;
use crate::server_text::printable;

/// Times beyond this one are not printed: an immutable entry may be fresh for ages.
const MAX_FRESH: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The findings about a request or a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InspectReport {
    /// The result of the proxy's cache; `None` for a key.
    pub cache: Option<CacheStatusMember>,
    /// The JSON-RPC method of a single call.
    pub method: Option<String>,
    /// The key, if the request was looked up.
    pub key: Option<String>,
    /// The result of the owner.
    pub owner: OwnerFinding,
}

/// The result of a lookup at the owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OwnerFinding {
    /// The owner was not queried.
    #[default]
    NotQueried,
    /// The owner has no entry.
    Absent,
    /// The owner has an entry.
    Found(OwnerEntry),
}

impl InspectReport {
    /// Returns the report as a table. Absent findings have no row.
    pub fn to_text(&self, now: SystemTime) -> String {
        let mut table = String::new();
        for (label, text) in self.rows(now) {
            // writes to a String do not fail
            let _ = writeln!(table, "{label:<10}{text}");
        }
        table
    }

    fn rows(&self, now: SystemTime) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        if let Some(cache) = &self.cache {
            rows.push(("verdict", describe_verdict(cache)));
            let why = explain_reason(cache.reason()).filter(|_| !cache.is_hit);
            rows.extend(why.map(|why| ("why", why)));
        }
        if let Some(method) = &self.method {
            let row = explain_method(method).unwrap_or_else(|| {
                "in no table; cached only if sszip_cache_method or cache_method adds it".into()
            });
            rows.push(("method", format!("{}: {row}", printable(method))));
        }
        rows.extend(self.key.clone().map(|key| ("key", key)));
        match &self.owner {
            OwnerFinding::NotQueried => {}
            OwnerFinding::Absent => rows.push(("stored", self.describe_absence().into())),
            OwnerFinding::Found(entry) => rows.extend(entry_rows(entry, now)),
        }
        rows
    }

    fn describe_absence(&self) -> &'static str {
        match &self.cache {
            Some(cache) if cache.is_hit => "not at the owner: in the memory of a worker only",
            _ => "not at the owner",
        }
    }

    /// Returns the report as JSON.
    pub fn to_json(&self, now: SystemTime) -> Value {
        let mut json = json!({ "key": self.key });
        if let Some(cache) = &self.cache {
            json["hit"] = cache.is_hit.into();
            json["ttl"] = cache.ttl.into();
            if !cache.is_hit {
                json["reason"] = cache.reason().into();
                json["why"] = explain_reason(cache.reason()).into();
            }
        }
        if let Some(method) = &self.method {
            json["method"] = method.as_str().into();
            json["method_row"] = explain_method(method).into();
        }
        match &self.owner {
            OwnerFinding::NotQueried => {}
            OwnerFinding::Absent => json["owner"] = Value::Null,
            OwnerFinding::Found(entry) => {
                json["owner"] = json!({
                    "tier": entry.tier,
                    "class": entry.class,
                    "namespace": entry.namespace,
                    "method": entry.method,
                    "block": entry.block,
                    "bytes": entry.length,
                    "fresh_ms": entry.fresh.map(|fresh| fresh.as_millis() as u64),
                    "age_seconds": entry.age.map(|age| age.as_secs()),
                    "requested_at": entry.age.and_then(|age| format_time(now.checked_sub(age)?)),
                });
            }
        }
        json
    }
}

fn describe_verdict(cache: &CacheStatusMember) -> String {
    match (cache.is_hit, cache.ttl) {
        (true, Some(ttl)) if ttl < 0 => format!("hit, stale for {} s", ttl.unsigned_abs()),
        (true, Some(ttl)) => format!("hit, fresh for {ttl} s"),
        (true, None) => "hit".into(),
        (false, _) => format!("not cached: {}", printable(cache.reason())),
    }
}

fn entry_rows(entry: &OwnerEntry, now: SystemTime) -> Vec<(&'static str, String)> {
    let mut stored = match entry.tier.as_deref() {
        Some("disk") => "on disk, or being written there".into(),
        Some("memory") => "in the owner's memory".into(),
        Some(tier) => format!("at the owner ({tier})"),
        None => String::from("at the owner"),
    };
    // writes to a String do not fail
    let _ = write!(stored, ": {} bytes", entry.length);
    let attributes = [
        ("class", entry.class.clone()),
        ("namespace", entry.namespace.clone()),
        ("method", entry.method.clone()),
        ("block", entry.block.map(|block| block.to_string())),
    ];
    for (name, value) in attributes {
        if let Some(value) = value {
            let _ = write!(stored, ", {name} {value}");
        }
    }
    let mut rows = vec![("stored", stored)];
    if let Some(fresh) = entry.fresh {
        let end = now.checked_add(fresh).filter(|_| fresh <= MAX_FRESH);
        rows.push(match end.and_then(format_time) {
            Some(end) => ("fresh", format!("until {end}")),
            None => ("fresh", "for more than 100 years".into()),
        });
    }
    let requested = entry.age.and_then(|age| Some((age, now.checked_sub(age)?)));
    if let Some((age, time)) = requested.and_then(|(age, time)| Some((age, format_time(time)?))) {
        rows.push((
            "node",
            format!(
                "requested {} ago; the access log has the node (\"node\") at {time}",
                format_duration(age)
            ),
        ));
    }
    rows
}

/// Returns a time as HTTP writes it; `None` outside of 1970 to 9999.
fn format_time(time: SystemTime) -> Option<String> {
    const YEAR_9999: u64 = 253_370_764_800;
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    (since.as_secs() < YEAR_9999).then(|| httpdate::fmt_http_date(time))
}

/// Returns a duration in its largest unit with two digits: `95 s`, `3 h`.
fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_924_800)
    }

    fn entry() -> OwnerEntry {
        OwnerEntry {
            tier: Some("disk".into()),
            class: Some("immutable".into()),
            block: Some(19_000_000),
            fresh: Some(Duration::from_millis(3_600_000)),
            age: Some(Duration::from_secs(3 * 3_600)),
            length: 61_204,
            ..Default::default()
        }
    }

    #[test]
    fn hit_is_reported_with_its_entry() {
        let report = InspectReport {
            cache: Some(CacheStatusMember {
                is_hit: true,
                ttl: Some(3_594),
                ..Default::default()
            }),
            method: Some("eth_chainId".into()),
            key: Some("ab".repeat(32)),
            owner: OwnerFinding::Found(entry()),
        };
        let text = report.to_text(now());
        let method = explain_method("eth_chainId").unwrap();
        let expected = format!(
            "verdict   hit, fresh for 3594 s\n\
             method    eth_chainId: {method}\n\
             key       {}\n\
             stored    on disk, or being written there: 61204 bytes, class immutable, block 19000000\n\
             fresh     until {}\n\
             node      requested 3 h ago; the access log has the node (\"node\") at {}\n",
            "ab".repeat(32),
            httpdate::fmt_http_date(now() + Duration::from_secs(3_600)),
            httpdate::fmt_http_date(now() - Duration::from_secs(3 * 3_600)),
        );
        assert_eq!(text, expected);
        let json = report.to_json(now());
        assert_eq!((&json["hit"], &json["ttl"]), (&json!(true), &json!(3_594)));
        assert_eq!(json["owner"]["bytes"], 61_204);
        assert_eq!(json["owner"]["fresh_ms"], 3_600_000);
        assert!(json.get("reason").is_none());
    }

    #[test]
    fn reason_is_explained_and_escaped() {
        let mut report = InspectReport {
            cache: Some(CacheStatusMember {
                detail: Some("credentials".into()),
                ..Default::default()
            }),
            ..Default::default()
        };
        let text = report.to_text(now());
        let why = explain_reason("credentials").unwrap();
        let expected = format!("verdict   not cached: credentials\nwhy       {why}\n");
        assert_eq!(text, expected);
        report.cache.as_mut().unwrap().detail = Some("\u{1b}[2J".into());
        report.method = Some("acme_\u{1b}".into());
        let text = report.to_text(now());
        assert!(
            !text.contains('\u{1b}') && text.contains("acme_\\u{1b}: in no table"),
            "{text}"
        );
    }

    #[test]
    fn odd_times_of_an_entry_are_no_error() {
        let mut entry = entry();
        entry.fresh = Some(Duration::from_millis(u64::MAX));
        entry.age = Some(Duration::from_secs(u64::MAX));
        entry.tier = None;
        let report = InspectReport {
            owner: OwnerFinding::Found(entry),
            ..Default::default()
        };
        let text = report.to_text(now());
        assert!(text.contains("at the owner: 61204 bytes"), "{text}");
        assert!(
            text.ends_with("fresh     for more than 100 years\n"),
            "{text}"
        );
        assert_eq!(report.to_json(now())["owner"]["requested_at"], Value::Null);
    }

    #[test]
    fn absent_entry_of_a_hit_is_in_a_worker() {
        let mut report = InspectReport {
            owner: OwnerFinding::Absent,
            ..Default::default()
        };
        assert_eq!(report.to_text(now()), "stored    not at the owner\n");
        report.cache = Some(CacheStatusMember {
            is_hit: true,
            ttl: Some(-2),
            ..Default::default()
        });
        let expected = "verdict   hit, stale for 2 s\n\
                        stored    not at the owner: in the memory of a worker only\n";
        assert_eq!(report.to_text(now()), expected);
        assert_eq!(report.to_json(now())["owner"], Value::Null);
    }

    #[test]
    fn durations_have_one_unit() {
        for (seconds, expected) in [
            (0, "0 s"),
            (119, "119 s"),
            (120, "2 min"),
            (7_200, "2 h"),
            (172_800, "2 days"),
        ] {
            assert_eq!(format_duration(Duration::from_secs(seconds)), expected);
        }
    }
}
