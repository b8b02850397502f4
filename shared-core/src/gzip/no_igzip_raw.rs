//! Replacement of `igzip_raw` for targets that can't open a library at run time.

pub(super) fn load_igzip_library() {}

pub(super) fn is_igzip_available() -> bool {
    false
}

/// Compresses nothing: returns `false`, with unchanged `output`.
pub(super) fn deflate_with_igzip(_plain: &[u8], _output: &mut Vec<u8>) -> bool {
    false
}
