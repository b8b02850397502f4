//! The fields of a head that hosts keep a place for.

/// A field of a response head that a host knows by more than its name.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum sszip_known_field {
    /// None of these.
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

impl sszip_known_field {
    /// Of a field's name, in any case.
    pub(super) fn of(name: &[u8]) -> Self {
        use sszip_known_field::*;
        // most names differ by their lengths
        let candidates: &[(&str, Self)] = match name.len() {
            4 => &[("Vary", SSZIP_FIELD_VARY), ("ETag", SSZIP_FIELD_ETAG)],
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
        // and those that we write are spelt as here
        candidates
            .iter()
            .find(|(known, _)| {
                name == known.as_bytes() || name.eq_ignore_ascii_case(known.as_bytes())
            })
            .map_or(SSZIP_FIELD_OTHER, |(_, field)| *field)
    }
}
