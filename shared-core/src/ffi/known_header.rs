//! Headers that hosts store in a member of their own.

/// Header of a response head that a host stores in a member of its own.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_known_header {
    /// Any other header.
    SSZIP_FIELD_OTHER = 0,
    /// `Accept-Ranges`
    SSZIP_FIELD_ACCEPT_RANGES,
    /// `Cache-Control`
    SSZIP_FIELD_CACHE_CONTROL,
    /// `Content-Encoding`
    SSZIP_FIELD_CONTENT_ENCODING,
    /// `Content-Length`
    SSZIP_FIELD_CONTENT_LENGTH,
    /// `Content-Type`
    SSZIP_FIELD_CONTENT_TYPE,
    /// `Date`
    SSZIP_FIELD_DATE,
    /// `ETag`
    SSZIP_FIELD_ETAG,
    /// `Expires`
    SSZIP_FIELD_EXPIRES,
    /// `Last-Modified`
    SSZIP_FIELD_LAST_MODIFIED,
    /// `Location`
    SSZIP_FIELD_LOCATION,
    /// `Vary`
    SSZIP_FIELD_VARY,
    /// `WWW-Authenticate`
    SSZIP_FIELD_WWW_AUTHENTICATE,
}

impl sszip_known_header {
    /// Returns the value for a header's name, in any letter case.
    pub(super) fn from_name(name: &[u8]) -> Self {
        use sszip_known_header::*;
        // the length distinguishes most names
        let candidates: &[(&str, Self)] = match name.len() {
            4 => &[
                ("Vary", SSZIP_FIELD_VARY),
                ("ETag", SSZIP_FIELD_ETAG),
                ("Date", SSZIP_FIELD_DATE),
            ],
            7 => &[("Expires", SSZIP_FIELD_EXPIRES)],
            8 => &[("Location", SSZIP_FIELD_LOCATION)],
            12 => &[("Content-Type", SSZIP_FIELD_CONTENT_TYPE)],
            13 => &[
                ("Cache-Control", SSZIP_FIELD_CACHE_CONTROL),
                ("Accept-Ranges", SSZIP_FIELD_ACCEPT_RANGES),
                ("Last-Modified", SSZIP_FIELD_LAST_MODIFIED),
            ],
            14 => &[("Content-Length", SSZIP_FIELD_CONTENT_LENGTH)],
            16 => &[
                ("Content-Encoding", SSZIP_FIELD_CONTENT_ENCODING),
                ("WWW-Authenticate", SSZIP_FIELD_WWW_AUTHENTICATE),
            ],
            _ => &[],
        };
        // the core writes the names in the case that is listed here
        candidates
            .iter()
            .find(|(known, _)| {
                name == known.as_bytes() || name.eq_ignore_ascii_case(known.as_bytes())
            })
            .map_or(SSZIP_FIELD_OTHER, |(_, field)| *field)
    }
}
