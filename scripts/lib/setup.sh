# What the commands of scripts/ share: messages, packages, and build folders. Sourced, with bash, from any folder.
# SPDX-License-Identifier: Apache-2.0

# The caller works at the top of the source tree.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

say()
{
    printf '==> %s\n' "$*"
}

die()
{
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Debian packages found missing by need_*, installed together by install_missing. What is optional the build does without.
missing=()
optional=()

need_command()
{
    command -v "$1" >/dev/null || missing+=("$2")
}

need_compiler()
{
    command -v cc >/dev/null || command -v gcc >/dev/null || missing+=(gcc)
    [[ -e /usr/include/stdlib.h ]] || missing+=(libc6-dev)
}

need_build_tools()
{
    need_compiler
    need_command meson meson
    need_command ninja ninja-build
    need_command pkg-config pkg-config
    need_command python3 python3
    # The command reads and writes archives by the one, and names native code by the other, which it looks for as it runs.
    [[ -e /usr/include/zlib.h ]] || optional+=(zlib1g-dev)
    compgen -G '/usr/lib*/**/libdw.so.1' >/dev/null || compgen -G '/usr/lib*/libdw.so.1' >/dev/null || optional+=(libdw1)
    # pip only where the headers are still to be fetched.
    if [[ ${VPOOL_CUDA_HEADERS:-auto} == pypi && ! -e build/cuda-headers ]] ||
        ! VPOOL_CUDA_HEADERS=installed scripts/cuda-headers build >/dev/null 2>&1; then
        python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip ca-certificates)
    fi
}

install_missing()
{
    ((${#missing[@]} + ${#optional[@]})) || return 0
    local root=() hindrance=
    command -v apt-get >/dev/null || hindrance=" (Debian's names; there is no apt-get here)"
    if ((EUID != 0)) && [[ ! $hindrance ]]; then
        command -v sudo >/dev/null || hindrance="; run as root, or install sudo"
        root=(sudo)
    fi
    if [[ $hindrance ]]; then
        ((${#missing[@]} == 0)) || die "missing: ${missing[*]}$hindrance"
        say "going on without ${optional[*]}$hindrance"
        return 0
    fi
    say "installing ${missing[*]} ${optional[*]}"
    local apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq)
    if "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "${missing[@]}" "${optional[@]}" >/dev/null; then
        hash -r
    else
        ((${#missing[@]} == 0)) || die "could not install ${missing[*]}"
        say "going on without ${optional[*]}"
    fi
}

# Sets a build folder up, or takes the one that is there; further arguments are meson's options. All folders
# share the headers of build/, which are looked for first: meson would not show why there are none.
configure()
{
    local folder=$1 headers
    shift
    [[ $PWD != *[:[:space:]]* ]] || die "$PWD: LD_PRELOAD cannot hold a path with a space or a colon; move the clone"
    headers=$(scripts/cuda-headers build) || return 1
    [[ $folder == build ]] || set -- "-Dcuda-include=$headers" "$@"
    if [[ -e $folder/build.ninja ]]; then
        (($# == 0)) || meson configure "$folder" "$@" >/dev/null
    else
        meson setup "$folder" "$@"
    fi
}

# compile FOLDER [TARGET...]: all but the tests, unless told.
compile()
{
    ninja -C "$@"
}
