//! What the cache had to do with an answer.

named! {
    /// `$sszip_cache_status` in nginx.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    CacheStatus
    /// There is no cache here, or the request is not one for it.
    #[default]
    None "",
    /// It was not looked up: nothing that could be stored was asked for.
    Bypass "BYPASS",
    /// It was not there.
    Miss "MISS",
    /// It was there, and stale, and the node says that it is still right.
    Revalidated "REVALIDATED",
    /// It was there, and stale, and was sent because the node failed.
    Stale "STALE",
    /// It was there, and stale, and was sent because another request fetches a
    /// new one.
    Updating "UPDATING",
    /// It was there.
    Hit "HIT",
}
