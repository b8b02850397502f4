//! Weights of content negotiation (RFC 9110, section 12.4.2).

/// The weight of a preference (RFC 9110, 12.4.2: `q`) in thousandths, 0 to 1000.
pub(super) type PreferenceWeight = u16;

/// Weight of a member without a `q` parameter.
pub(super) const DEFAULT_WEIGHT: PreferenceWeight = 1000;

/// Parses `0[.ddd]` or `1[.000]`. Returns thousandths.
pub(super) fn parse_weight(qvalue: &[u8]) -> Option<PreferenceWeight> {
    let (whole, fraction) = match qvalue {
        [whole] => (whole, &[][..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return None,
    };
    let mut thousandths = 0;
    for place in 0..3 {
        let digit = match fraction.get(place) {
            Some(digit @ b'0'..=b'9') => PreferenceWeight::from(digit - b'0'),
            Some(_) => return None,
            None => 0,
        };
        thousandths = thousandths * 10 + digit;
    }
    match (whole, thousandths) {
        (b'0', thousandths) => Some(thousandths),
        (b'1', 0) => Some(1000),
        _ => None,
    }
}
