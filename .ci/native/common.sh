# Shared by `run` and `vm`, which set `arch` and `suite` and use these functions in the root of the checkout.
SKIPPED=75
# Of the cache: root folders, images, archives and components.
own="${ARCHPROOF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/archproof}/native"

skip() {
    printf 'skipped: %s\n' "$1"
    exit "$SKIPPED"
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -- "$@"; fi
}

# facts SECTION FIELD: the first value of a field in a section of the target file.
facts() {
    sed -nE "/^$1:/,/^[a-z]/s/^  $2: (.*)\$/\1/p" "targets/architectures/$arch.yaml" | head -n 1 | tr -d '[]"' | cut -d, -f1
}

# known: exits with 2 if the architecture has no target file.
known() {
    [ -f "targets/architectures/$arch.yaml" ] || { echo "no architecture $arch in targets/" >&2 && exit 2; }
}

# The kernel starts programs of another architecture through binfmt_misc. With F it opens the emulator at once, so that
# the emulator need not be in the root folder.
emulate() {
    local emulator program minimum found formats=/proc/sys/fs/binfmt_misc
    [ "$(dpkg --print-architecture)" != "$(facts machine debian)" ] || return 0
    emulator=$(facts emulator commands)
    [ -e $formats/register ] || as_root mount -t binfmt_misc binfmt_misc $formats || skip 'binfmt_misc cannot be mounted'
    [ -e "$formats/$emulator" ] || as_root tee $formats/register <"/usr/lib/binfmt.d/$emulator.conf" >/dev/null ||
        skip "$emulator is not registered with binfmt_misc; install qemu-user-static"
    minimum=$(facts emulator minimum)
    [ -n "$minimum" ] || return 0
    program=$(sed -n 's/^interpreter //p' "$formats/$emulator")
    # The program may be gone: the kernel has it open.
    found=$("$program" --version 2>/dev/null | sed -nE 's/.* version ([0-9.]+).*/\1/p') || true
    printf '%s\n' "$minimum" "$found" | sort --version-sort --check=quiet ||
        skip "$arch needs QEMU $minimum, and $program is ${found:-unknown}; install a newer qemu-user and register it again"
}

# install PROGRAM PACKAGE: installs the package if the program is missing.
install() {
    ! command -v "$1" >/dev/null || return 0
    as_root apt-get update -qq || skip 'the lists of packages could not be updated'
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" ||
        skip "the package $2 could not be installed"
}

# The Debian mirror of this machine.
mirror() {
    local found
    found=$(sed -nE 's#^(deb |URIs:).* ?(https?://[^ ]+/debian)/?( .*)?$#\2#p' /etc/apt/sources.list \
        /etc/apt/sources.list.d/* 2>/dev/null | head -n 1 || true)
    printf '%s\n' "${found:-http://deb.debian.org/debian}"
}

# rules: debootstrap's script for `suite`, or that of sid for a suite that is newer than debootstrap.
rules() {
    local rules=/usr/share/debootstrap/scripts/$suite
    [ -e "$rules" ] || rules=${rules%/*}/sid
    printf '%s\n' "$rules"
}

build_archive() {
    local tools=$own/tools rust std=()
    rust=$(facts harness rust)
    [ -x "$tools/bin/cargo-zigbuild" ] || { python3 -m venv "$tools" &&
        "$tools/bin/pip" install --quiet --require-hashes --requirement workflows/zig.txt; }
    # An archive of an earlier version would match the same pattern.
    rm -f "$dist"/archproof-*-"$arch".tar.gz
    rustup target add "$rust" || { rustup component add rust-src && std=(--build-std); }
    cargo xtask dist --host "$arch" --tools "$tools/bin" --out "$dist" "${std[@]}"
}

# parts: the archive in the folder `dist` and the components in `components`, which ARCHPROOF_DIST and
# ARCHPROOF_COMPONENTS may name.
parts() {
    dist=${ARCHPROOF_DIST:-$own/dist} components=${ARCHPROOF_COMPONENTS:-$own/components}
    [ -n "${ARCHPROOF_DIST:-}" ] || build_archive
    [ -n "${ARCHPROOF_COMPONENTS:-}" ] || cargo xtask build --arch "$arch" --export "$components"
}
