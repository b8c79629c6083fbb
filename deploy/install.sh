#!/usr/bin/env bash
# Install one part of the set-up: python | jars | gpu-jar | horovod | serve | peers. A part that is up to date is skipped.
# Packages come by pip's and Gradle's own clients; uv and Gradle keep what they fetched, so a second time is quick.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv
serve_venv=.venv-serve
uv=$venv/bin/uv
export UV_LINK_MODE=${UV_LINK_MODE:-hardlink} UV_NO_PROGRESS=1

say() { printf '[setup] %s\n' "$*"; }
die() { printf '[setup] %s\n' "$*" >&2; exit 2; }

# Run a part unless its stamp carries the digest of the files it depends on.
part() { # name, stamp, usual time, files..., -- command
    local name=$1 stamp=$2 usual=$3 digest start; shift 3
    local files=()
    while [ "$1" != -- ]; do files+=("$1"); shift; done; shift
    digest=$(cat "${files[@]}" | sha256sum | cut -d' ' -f1)
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$digest" ]; then say "$name: up to date"; return; fi
    say "$name … (the first time usually $usual)"
    start=$SECONDS
    "$@"
    mkdir -p "$(dirname "$stamp")"
    echo "$digest" > "$stamp"
    say "$name: done in $((SECONDS - start)) s"
}

find_python() {
    local candidate
    for candidate in python3.11 python3.12 python3; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null; then
            echo "$candidate"; return
        fi
    done
    die "no Python 3.11 or 3.12 on PATH; install python3.11 python3.11-venv python3.11-dev"
}

# All that is missing is told at once, and before anything is fetched.
need_tools() {
    local python missing=(); python=$(find_python)
    command -v java >/dev/null || missing+=(openjdk-17-jre-headless)
    command -v g++ >/dev/null || missing+=(g++)
    "$python" -c 'import sysconfig, pathlib as p, sys; sys.exit(not p.Path(sysconfig.get_paths()["include"], "Python.h").exists())' \
        || missing+=("${python##*/}-dev")
    "$python" -c 'import ensurepip' 2>/dev/null || missing+=("${python##*/}-venv")
    command -v gradle >/dev/null || can_install || missing+=(gradle)
    [ ${#missing[@]} = 0 ] || die "not here: ${missing[*]}; run: sudo apt-get install ${missing[*]}"
}

can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

make_venv() {
    local python; python=$(find_python)
    [ -x "$1/bin/python" ] || "$python" -m venv "$1" || die "$python -m venv failed; install python3.11-venv"
}

install_python() {
    need_tools
    make_venv $venv
    [ -x $uv ] || $venv/bin/python -m pip install -q --disable-pip-version-check "$(grep '^uv==' constraints.txt)"
    $uv pip install -q --python $venv/bin/python --compile-bytecode -c constraints.txt -e '.[train,client,dev]' \
        setuptools wheel cmake ninja fbgemm-gpu-cpu
    # These ask for versions that do not exist together; what they need of them is in the train extra.
    $uv pip install -q --python $venv/bin/python --compile-bytecode --no-deps -c constraints.txt torchrec petastorm
}

install_gradle() {
    command -v gradle >/dev/null && return
    say "gradle is not on PATH: installing Debian's"
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends gradle; } >/dev/null 2>&1 \
        || die "apt-get install gradle failed; install Gradle 4.4.1 or later and put it on PATH"
}

install_jars() {
    need_tools
    install_gradle
    gradle -q --console=plain "$@" jars 2>&1 | grep -v -iE 'openjdk|^$' || true
    ls jars/delta-spark_*.jar >/dev/null 2>&1 || die "gradle jars left no jars/delta-spark_*.jar; run it to see why: gradle $* jars"
}

install_gpu_jar() {
    install_jars -Pgpu
    ls jars/gpu/rapids-4-spark_*.jar >/dev/null 2>&1 || die "gradle -Pgpu jars left no RAPIDS jar in jars/gpu; run it to see why"
}

install_horovod() {
    need_tools
    local gpu=()
    command -v nvcc >/dev/null && gpu=(HOROVOD_GPU_OPERATIONS=NCCL)
    env PATH="$PWD/$venv/bin:$PATH" CMAKE_TOOLCHAIN_FILE="$PWD/deploy/horovod-cxx17.cmake" CMAKE_POLICY_VERSION_MINIMUM=3.5 \
        HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITHOUT_MPI=1 \
        HOROVOD_WITH_GLOO=1 HOROVOD_CPU_OPERATIONS=GLOO LDFLAGS=-s "${gpu[@]}" \
        $uv pip install -q --python $venv/bin/python --no-deps --no-build-isolation -c constraints.txt horovod
}

install_serve() {
    make_venv $serve_venv
    $uv pip install -q --python $serve_venv/bin/python --compile-bytecode -c deploy/constraints-serve.txt -e '.[serve]'
}

install_peers() {
    $uv pip install -q --python $venv/bin/python --compile-bytecode -c constraints.txt -e '.[bench]'
}

case "${1:-}" in
    python) part "Python packages in $venv" $venv/.installed "1 to 3 minutes, 5 GB" pyproject.toml constraints.txt deploy/install.sh -- install_python ;;
    jars) part "Delta jars" jars/.installed "15 seconds, 40 seconds with Gradle" build.gradle -- install_jars ;;
    gpu-jar) part "RAPIDS jar, 1.0 GB" jars/gpu/.installed "20 seconds to some minutes" build.gradle -- install_gpu_jar ;;
    horovod) part "Horovod build" $venv/.installed-horovod "2 to 6 minutes, later seconds" constraints.txt deploy/horovod-cxx17.cmake -- install_horovod ;;
    serve) part "Triton and $serve_venv" $serve_venv/.installed "30 seconds" pyproject.toml deploy/constraints-serve.txt -- install_serve ;;
    peers) part "Peers of the benchmarks" $venv/.installed-peers "10 seconds" pyproject.toml constraints.txt -- install_peers ;;
    *) die "usage: deploy/install.sh python | jars | gpu-jar | horovod | serve | peers" ;;
esac
