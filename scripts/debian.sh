# Another Debian in a folder, for try-readme, try-nginx, build-deb and package-test; sourced, never
# run, after lib.sh.
# shellcheck shell=bash
#
# The machine's own settings for its registries (apt's, pip's, npm's, cargo's, Go's,
# certificates) go along.

# new_debian FOLDER RELEASE: an empty one, by debootstrap.
new_debian() {
    local root=$1 release=$2 mirror file script
    command -v debootstrap >/dev/null || apt-get -q install -y --no-install-recommends debootstrap
    # shellcheck disable=SC2016  # apt's own
    mirror=$(apt-get indextargets --format '$(SITE)' | head -n 1)
    script=/usr/share/debootstrap/scripts/$release
    # one that is newer than debootstrap
    [ -e "$script" ] || script=${script%/*}/sid
    # not by errexit, which a caller may have suspended
    debootstrap --variant=minbase --include=ca-certificates "$release" "$root" "$mirror" "$script" || return
    for file in /etc/apt/apt.conf.d/* /etc/apt/auth.conf.d /etc/apt/sources.list \
        /etc/apt/sources.list.d/debian.sources /etc/apt/keyrings /etc/ssl/certs /usr/local/share/ca-certificates \
        /etc/pip.conf /etc/resolv.conf /etc/hosts "$HOME"/.npmrc "$HOME"/.config/go "$HOME"/.cargo/config.toml; do
        [ -e "$file" ] || continue
        case $file in
            # a package's, of which the other release has its own
            /etc/apt/apt.conf.d/*) ! dpkg -S "$file" >/dev/null 2>&1 || continue ;;
        esac
        case $release:$file in
            # debootstrap's own, which names that release
            bookworm:*) ;;
            *:/etc/apt/sources.list*) continue ;;
        esac
        mkdir -p "$root${file%/*}"
        rm -rf "${root:?}$file"
        cp -aLT "$file" "$root$file"
    done
    echo 'APT::Get::Assume-Yes "true";' >"$root/etc/apt/apt.conf.d/90yes"
}

# clone_into_debian RELEASE FOLDER: HEAD, in a folder of a Debian in $SSZIP_CACHE/debian/RELEASE,
# which is created if it is missing.
clone_into_debian() {
    local root=$SSZIP_CACHE/debian/$1 clone=$SSZIP_CACHE/debian/$1$2
    [ "$(id -u)" = 0 ] || die "debootstrap and chroot require root; run this script as root"
    [ -z "$(git -C "$SSZIP_ROOT" status --porcelain)" ] || die "the working tree has uncommitted changes, and this script uses a clone; commit them first"
    if [ ! -d "$root" ]; then
        mkdir -p "${root%/*}"
        rm -rf --one-file-system "$root.new"
        new_debian "$root.new" "$1"
        mv "$root.new" "$root"
    fi
    [ -d "$clone" ] || git clone -q "$SSZIP_ROOT" "$clone"
    git -C "$clone" fetch -q "$SSZIP_ROOT" HEAD
    git -C "$clone" reset -q --hard FETCH_HEAD
}

# in_debian FOLDER COMMAND...: there, with its own processes and mounts.
in_debian() {
    # shellcheck disable=SC2016  # for the shell within
    unshare --mount --pid --fork --kill-child bash -euc '
        root=$1
        shift
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        mount --rbind /sys "$root/sys"
        exec chroot "$root" env -i HOME=/root LANG=C.UTF-8 \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            DEBIAN_FRONTEND=noninteractive "$@"
    ' in_debian "$@"
}
