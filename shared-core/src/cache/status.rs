//! What the cache had to do with an answer.

/// `$sszip_cache_status` in nginx.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheStatus {
    /// There is no cache here, or the request is not one for it.
    #[default]
    None,
    /// It was not looked up: nothing that could be stored was asked for.
    Bypass,
    /// It was not there.
    Miss,
    /// It was there, and stale, and the node says that it is still right.
    Revalidated,
    /// It was there, and stale, and was sent because the node failed.
    Stale,
    /// It was there, and stale, and was sent because another request fetches a
    /// new one.
    Updating,
    /// It was there.
    Hit,
}

impl CacheStatus {
    /// nginx's word for it (`$upstream_cache_status`); empty for none.
    pub const fn name(self) -> &'static str {
        match self {
            CacheStatus::None => "",
            CacheStatus::Bypass => "BYPASS",
            CacheStatus::Miss => "MISS",
            CacheStatus::Revalidated => "REVALIDATED",
            CacheStatus::Stale => "STALE",
            CacheStatus::Updating => "UPDATING",
            CacheStatus::Hit => "HIT",
        }
    }
}
