#!/usr/bin/env bash
# One picture through mien against the same work in Python, side by side.
#   benches/still.sh [ROUNDS]
# Needs what tests/run needs. Python packages go into the cache, nowhere else.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
cache=${MIEN_BENCH:-${XDG_CACHE_HOME:-$HOME/.cache}/mien-bench}
packages=$cache/python
export MIEN_HOME=$cache/home
models=$cache/models # Plain files, for the peer; mien has its own, sealed.
mkdir -p "$models" "$MIEN_HOME/models"

cargo build -q --release
mien=${CARGO_TARGET_DIR:-target}/release/mien

if [ ! -e "$packages/whole" ]; then
    rm -rf "$packages"
    python3 -m pip install -q --target "$packages" --only-binary :all: \
        numpy==2.4.6 opencv-python-headless==5.0.0.93 onnxruntime==1.28.0
    touch "$packages/whole"
fi

"$mien" model fetch -q --test-pictures "$cache/pictures"
"$mien" model fetch -q --plain "$models"
python3 benches/make_swapper.py "$cache"
cp "$cache"/swapper-bench.{onnx,toml} "$models/"
cp "$cache"/swapper-bench.{onnx,toml} "$MIEN_HOME/models/"

# Who is put where: the astronaut on Grace Hopper, who must be recognised first.
enrol() {
    "$mien" source forget "$1" >/dev/null 2>&1 || true
    "$mien" source enrol "$1" "$2" --subject bench --purpose bench --scope swap --days 30 >/dev/null
}
enrol bench-source "$cache/pictures/astronaut.png"
enrol bench-target "$cache/pictures/hopper.jpg"
PYTHONPATH=$packages python3 benches/peer_still.py enrol \
    "$cache/pictures/astronaut.png" "$cache/source.npy" --models "$models"

# The portrait as it is, and as a part of a picture of 1920 x 1080.
cp "$cache/pictures/hopper.jpg" "$cache/512x600.jpg"
PYTHONPATH=$packages python3 - "$cache" <<'PYTHON'
import sys, cv2, numpy as np
portrait = cv2.imread(f"{sys.argv[1]}/pictures/hopper.jpg")
noise = np.random.default_rng(1).normal(0, 1, (1080, 1920, 3)).astype(np.float32)
rough, fine = cv2.GaussianBlur(noise, (0, 0), 40) * 1500, cv2.GaussianBlur(noise, (0, 0), 2) * 20
frame = (100 + rough + fine).clip(0, 255).astype(np.uint8)
high, wide = portrait.shape[:2]
frame[240 : 240 + high, 700 : 700 + wide] = portrait
cv2.imwrite(f"{sys.argv[1]}/1920x1080.jpg", frame, [cv2.IMWRITE_JPEG_QUALITY, 95])
PYTHON

PYTHONPATH=$packages python3 benches/still.py --mien "$mien" --models "$models" \
    --packages "$packages" --work "$cache" --rounds "$rounds" \
    "$cache/512x600.jpg" "$cache/1920x1080.jpg"
