//! The views of an owner: its followed chains, the store and the fleet.

use super::owner_snapshot::OwnerSnapshot;
use super::snapshot::StatusSnapshot;
use super::table::{labelled_lines, TextTable};
use super::units::{format_bytes, format_count, format_counts, or_unknown};

/// Returns the table of followed chains.
pub fn chain_table(owner: &OwnerSnapshot) -> TextTable {
    let mut table = TextTable::new(&["Chain", "State", "Head", "Age", "Final", "Reorgs"]);
    table.rows.extend(owner.chains.iter().map(|chain| {
        let number = |number: Option<u64>| or_unknown(number, |number| number.to_string());
        vec![
            chain.name.clone(),
            chain.state.clone(),
            number(chain.head),
            or_unknown(chain.head_age, |age| format!("{age:.1} s")),
            number(chain.last_final),
            format_count(chain.reorgs),
        ]
    }));
    table
}

/// Returns the lines of the store and of the fleet.
pub fn store_lines(snapshot: &StatusSnapshot) -> Vec<String> {
    let Some(owner) = &snapshot.owner else {
        let text = match &snapshot.owner_error {
            Some(error) => format!("ERROR: {error}"),
            None => "No store is configured.".into(),
        };
        return vec![text];
    };
    let [memory, disk, missed] = owner.lookups.map(format_count);
    let [done, failed] = owner.stores.map(format_count);
    let state = match &owner.store_off {
        Some(reason) => format!("OFF: {reason}"),
        None => "entries are written".into(),
    };
    let of_memory = format!(
        "{} entries, {} of {}, {} evicted",
        format_count(owner.memory_entries),
        format_bytes(owner.memory_bytes as f64),
        format_bytes(owner.memory_capacity as f64),
        format_count(owner.evicted)
    );
    let of_disk = format!(
        "{} entries, {}",
        format_count(owner.disk_entries),
        format_bytes(owner.disk_bytes as f64)
    );
    let mut lines = labelled_lines(&[
        ("Store", state),
        ("Memory", of_memory),
        ("Disk", of_disk),
        (
            "Lookups",
            format!("memory {memory}, disk {disk}, missed {missed}"),
        ),
        ("Entries written", format!("{done}, failed {failed}")),
        (
            "Processes",
            format!("{}, leases {}", owner.processes, owner.leases),
        ),
        ("Purges (generation)", owner.generation.to_string()),
    ]);
    if let Some(fleet) = &owner.fleet {
        let [lookups, stores] = &fleet.breakers;
        let state = if fleet.is_up { "in use" } else { "NOT IN USE" };
        lines.push(String::new());
        lines.extend(labelled_lines(&[
            ("Fleet", format!("{state}, {}", fleet.endpoint)),
            (
                "Circuit breakers",
                format!("lookups {lookups}, stores {stores}"),
            ),
            ("Fleet lookups", format_counts(&fleet.lookups)),
            (
                "Purge stream",
                format!(
                    "read {} ago, {} owners, {} purges unpublished",
                    or_unknown(fleet.stream_age, |age| format!("{age:.1} s")),
                    or_unknown(fleet.owners, format_count),
                    fleet.pending
                ),
            ),
        ]));
    }
    lines
}
