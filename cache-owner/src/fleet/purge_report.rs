//! Reports about the purges of a fleet: the effect of one purge, and the state of the stream.

use serde::Serialize;
use sszip_core::cache::fleet::stream_record::StreamId;

/// The effect of a purge in the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetPurgeReport {
    /// The purge is in the stream: each owner applies it when it reads the stream.
    Published {
        /// Position of the record.
        position: u64,
        /// Number of owners, this one included.
        owners: u64,
        /// Number of owners in which it is in effect.
        confirmed: u64,
        /// Number of the others that have shown no sign of life meanwhile.
        silent: u64,
    },
    /// The server is not reachable: the purge is published before the fleet is used again.
    Pending,
}

impl FleetPurgeReport {
    /// Returns the member `fleet` of the report about a purge.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Published {
                position,
                owners,
                confirmed,
                silent,
            } => serde_json::json!({
                "id": StreamId::from_position(*position).to_string(),
                "owners": owners,
                "confirmed": confirmed,
                "silent": silent,
            }),
            Self::Pending => serde_json::json!({ "error": "unreachable", "pending": true }),
        }
    }
}

/// The purge stream in the owner's status.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetStreamStatus {
    /// Seconds since the last complete poll of the stream; `None` if there was none.
    pub age_seconds: Option<f64>,
    /// Number of fences that this owner has written.
    pub fences: u64,
    /// Number of purges in the stream, by the owner that has published them.
    pub purges: FleetPurgeCounts,
    /// Number of records that could not be read.
    pub unreadable: u64,
    /// Number of purges that wait for their publication.
    pub pending: usize,
    /// Number of owners of the fleet; `None` while they are counted, after a start or a loss of the
    /// server's data.
    pub owners: Option<u64>,
    /// Position of this owner; `None` while it is not known.
    pub position: Option<u64>,
}

/// The number of purges in the stream, by the owner that has published them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FleetPurgeCounts {
    /// Purges of this owner.
    pub local: u64,
    /// Purges of other owners.
    pub fleet: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_has_the_members_of_its_case() {
        let published = FleetPurgeReport::Published {
            position: 1_764_331_200_421,
            owners: 3,
            confirmed: 2,
            silent: 1,
        };
        let expected = serde_json::json!({
            "id": "1764331200421-0", "owners": 3, "confirmed": 2, "silent": 1
        });
        assert_eq!(published.to_json(), expected);
        let pending = serde_json::json!({ "error": "unreachable", "pending": true });
        assert_eq!(FleetPurgeReport::Pending.to_json(), pending);
    }
}
