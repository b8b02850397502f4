//! When what nobody asks for is forgotten, where that is wanted.

/// How many times as old as an inactive entry a table is that goes, in
/// quarters; and after how many quarters what is asked for is put again. Two
/// of the latter may pass between a table's making and a hit that does not
/// renew an entry in it: one that it was old when it was read, and one since.
pub(super) const GOES: u64 = 6;
pub(super) const RENEWS: u64 = 1;

/// Of a time, without overflow.
pub(super) fn quarters(time: u64, count: u64) -> u64 {
    (time / 4).saturating_mul(count).max(1)
}
