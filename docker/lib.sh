# Functions of the entry points; sourced, never run.
# shellcheck shell=bash

say() { printf '%s: %s\n' "$SERVICE" "$*" >&2; }
die() { say "$*"; exit 1; }

# split_url NAME URL: sets $scheme, $host, $port, $path; ends with an error for an invalid URL.
split_url() {
    [[ $2 =~ ^(https?)://([^/:@?#]+|\[[0-9a-fA-F:]+\])(:([0-9]+))?(/[^?#]*)?$ ]] ||
        die "$1=$2 is not http://HOST[:PORT][/PATH]"
    scheme=${BASH_REMATCH[1]} host=${BASH_REMATCH[2]} port=${BASH_REMATCH[4]} path=${BASH_REMATCH[5]}
    if [ -z "$port" ]; then
        port=80
        [ "$scheme" = http ] || port=443
    fi
    if [ "$port" -lt 1 ] || [ "$port" -gt 65535 ]; then die "$1=$2: $port is no port"; fi
    case $host in
        localhost | 127.* | "[::1]")
            die "$1=$2: in a container that is the container itself;" \
                "a node on the machine is $scheme://host.docker.internal:$port${path:-}"
            ;;
    esac
    # whitespace and characters that are syntax in a configuration
    case $host$path in
        *[![:alnum:].:_/~%+=,@\[\]-]*) die "$1=$2 has characters that are none of a URL" ;;
    esac
}

# addresses HOST: prints all its addresses on one line; no line if the host does not exist
addresses() {
    local found
    found=$(getent ahosts "${1//[\[\]]/}" | awk '{ print $1 }' | sort -u | tr '\n' ' ') || :
    if [ -n "$found" ]; then echo "$found"; fi
}

# need_node NAME URL: checks that the node has an address. It may be unreachable until later.
need_node() {
    [ -n "$(addresses "$host")" ] ||
        die "$1=$2: there is no host $host; a service of this network, or host.docker.internal for this machine"
    if ! (exec 3<>"/dev/tcp/${host//[\[\]]/}/$port") 2>/dev/null; then
        say "$1=$2 refuses connections so far: what is not stored gets an error until it does"
    fi
}

# need_folder FOLDER: checks that the folder is writable.
need_folder() {
    [ -d "$1" ] || die "there is no folder $1: mount a volume there"
    if ! (: >"$1/.writable") 2>/dev/null; then
        [ -w "$1" ] && die "$1: the disk is full, or read-only"
        die "$1 can't be written by uid $(id -u): chown -R $(id -u):$(id -g) what is mounted there"
    fi
    rm -f "$1/.writable"
}

# Prints the number of CPUs of the container's cgroup and CPU set, rounded up.
cpus() {
    local quota='' period='' all
    all=$(nproc)
    if [ -r /sys/fs/cgroup/cpu.max ]; then
        read -r quota period </sys/fs/cgroup/cpu.max
    elif [ -r /sys/fs/cgroup/cpu/cpu.cfs_quota_us ]; then
        read -r quota </sys/fs/cgroup/cpu/cpu.cfs_quota_us
        read -r period </sys/fs/cgroup/cpu/cpu.cfs_period_us
    fi
    case $quota in
        '' | max | -*) echo "$all" ;;
        *)
            quota=$(((quota + period - 1) / period))
            echo $((quota < all ? quota : all))
            ;;
    esac
}
