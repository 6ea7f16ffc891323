#!/usr/bin/env python3
"""The work of `mien process` on one picture as Python tools do it: ONNX Runtime and OpenCV.

The stages are those of the usual tools: decode, content gate, CenterFace, five-point alignment,
embedding, match, generator, box mask, inverse warp, blend in float64, encode. The same models as
mien's, one thread. It puts no marks on the picture; mien does.

  peer_still.py enrol PICTURE OUT.npy --models DIR
  peer_still.py blur|swap PICTURE OUT --models DIR [--source NPY] [--swapper ONNX] [--emap BIN]

Prints one line of JSON: seconds of CPU within inference for each picture, and at the start."""

import argparse
import json
import time

START = time.process_time()

import cv2  # noqa: E402
import numpy as np  # noqa: E402
import onnxruntime as ort  # noqa: E402

EYES, NOSE = [[38.2946, 51.6963], [73.5318, 51.5014]], [[56.0252, 71.7366]]
TEMPLATE = np.array(EYES + NOSE + [[41.5493, 92.3655], [70.7299, 92.2041]])
GATE_MEAN = np.array([104, 117, 123], np.float32)
REFUSED = 0.8


class Meter:
    """CPU seconds by stage; `inference` is what sessions take."""

    def __init__(self):
        self.seconds = {}

    def __call__(self, stage):
        self.stage = stage
        return self

    def __enter__(self):
        self.begin = time.process_time()

    def __exit__(self, *_):
        spent = time.process_time() - self.begin
        self.seconds[self.stage] = self.seconds.get(self.stage, 0) + spent


METER = Meter()


def session(path):
    """A session on one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    with METER("load"):
        return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def infer(model, feeds):
    """Runs a model; its time is inference."""
    with METER("inference"):
        return model.run(None, feeds)


def refuse(picture, model):
    """The content gate of open_nsfw."""
    small = cv2.resize(picture, (256, 256), interpolation=cv2.INTER_LINEAR)[16:240, 16:240]
    blob = (small.astype(np.float32) - GATE_MEAN)[None]
    name = model.get_inputs()[0].name
    if infer(model, {name: blob})[0][0, 1] >= REFUSED:
        raise SystemExit("refused")


def detect(picture, model, side=640, least=0.5):
    """Boxes, scores and five points of CenterFace."""
    high, wide = picture.shape[:2]
    scale = side / max(high, wide)
    w, h = (-(-round(n * scale) // 32) * 32 for n in (wide, high))
    blob = cv2.dnn.blobFromImage(picture, 1.0, (w, h), swapRB=True)
    heat, size, offset, points = infer(model, {"input.1": blob})
    ys, xs = np.where(heat[0, 0] > least)
    if not len(ys):
        return []
    sx, sy = wide / w, high / h
    s0, s1 = np.exp(size[0, 0, ys, xs]) * 4, np.exp(size[0, 1, ys, xs]) * 4
    x1 = np.clip((xs + offset[0, 1, ys, xs] + 0.5) * 4 - s1 / 2, 0, w)
    y1 = np.clip((ys + offset[0, 0, ys, xs] + 0.5) * 4 - s0 / 2, 0, h)
    scores = heat[0, 0, ys, xs]
    boxes = np.stack([x1, y1, s1, s0], 1)
    keep = cv2.dnn.NMSBoxes(boxes.tolist(), scores.tolist(), least, 0.4)
    faces = []
    for i in np.array(keep).ravel():
        p = points[0, :, ys[i], xs[i]].reshape(5, 2)
        five = np.stack([(p[:, 1] * s1[i] + x1[i]) * sx, (p[:, 0] * s0[i] + y1[i]) * sy], 1)
        box = np.array([x1[i] * sx, y1[i] * sy, (x1[i] + s1[i]) * sx, (y1[i] + s0[i]) * sy])
        faces.append((box, float(scores[i]), five))
    return faces


def similarity(points, template):
    """Similarity from the picture to the crop."""
    found = cv2.estimateAffinePartial2D(
        points, template, method=cv2.RANSAC, ransacReprojThreshold=100
    )
    return found[0]


def embed(picture, points, model):
    """A normalised embedding."""
    matrix = similarity(points, TEMPLATE)
    crop = cv2.warpAffine(picture, matrix, (112, 112), borderMode=cv2.BORDER_REPLICATE)
    blob = ((crop.astype(np.float32) - 127.5) / 128)[:, :, ::-1].transpose(2, 0, 1)[None]
    name = model.get_inputs()[0].name
    vector = infer(model, {name: np.ascontiguousarray(blob)})[0].ravel()
    return vector / np.linalg.norm(vector)


def box_mask(side, blur=0.3):
    """A box with soft edges."""
    amount = int(side * 0.5 * blur)
    edge = max(amount // 2, 1)
    mask = np.ones((side, side), np.float32)
    mask[:edge] = mask[-edge:] = 0
    mask[:, :edge] = mask[:, -edge:] = 0
    return cv2.GaussianBlur(mask, (0, 0), amount * 0.25)


def swap(picture, points, latent, model):
    """One swapped face, blended into a copy of the picture."""
    matrix = similarity(points, TEMPLATE + [8, 0])
    crop = cv2.warpAffine(picture, matrix, (128, 128), borderMode=cv2.BORDER_REPLICATE)
    mask = box_mask(128)
    blob = (crop[:, :, ::-1] / 255.0).transpose(2, 0, 1)[None].astype(np.float32)
    made = infer(model, {"target": blob, "source": latent})[0][0]
    made = made.transpose(1, 2, 0).clip(0, 1)[:, :, ::-1] * 255
    back = cv2.invertAffineTransform(matrix)
    corners = np.array([[0, 0], [128, 0], [128, 128], [0, 128]]) @ back[:, :2].T + back[:, 2]
    high, wide = picture.shape[:2]
    x1, y1 = np.clip(np.floor(corners.min(0)).astype(int), 0, [wide, high])
    x2, y2 = np.clip(np.ceil(corners.max(0)).astype(int), 0, [wide, high])
    back[:, 2] -= (x1, y1)
    size = (int(x2 - x1), int(y2 - y1))
    alpha = cv2.warpAffine(mask, back, size).clip(0, 1)[..., None]
    layer = cv2.warpAffine(made, back, size, borderMode=cv2.BORDER_REPLICATE)
    picture = picture.copy()
    region = picture[y1:y2, x1:x2]
    picture[y1:y2, x1:x2] = (region * (1 - alpha) + layer * alpha).astype(picture.dtype)
    return picture


def blur(picture, faces):
    """Every face behind a blurred ellipse."""
    high, wide = picture.shape[:2]
    for box, _, _ in faces:
        cx, cy = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        w, h = box[2] - box[0], box[3] - box[1]
        x1, y1 = int(max(0, cx - w * 0.8)), int(max(0, cy - h * 0.8))
        x2, y2 = int(min(wide, cx + w * 0.8)), int(min(high, cy + h * 0.8))
        if x2 - x1 < 4 or y2 - y1 < 4:
            continue
        region = picture[y1:y2, x1:x2]
        soft = cv2.blur(region, ((x2 - x1) // 2, (y2 - y1) // 2))
        mask = np.zeros(region.shape[:2], np.uint8)
        centre = ((x2 - x1) // 2, (y2 - y1) // 2)
        cv2.ellipse(mask, centre, centre, 0, 0, 360, 255, -1)
        region[mask > 0] = soft[mask > 0]
    return picture


def latent_of(source, emap):
    """The generator's latent of an embedding."""
    raw = open(emap, "rb").read()
    rows = int.from_bytes(raw[:4], "little")
    latent = (source @ np.frombuffer(raw[4:], np.float32).reshape(rows, -1)).reshape(1, -1)
    return (latent / np.linalg.norm(latent)).astype(np.float32)


def main():
    """One picture, or the same again and again with --repeat."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["enrol", "blur", "swap"])
    parser.add_argument("picture")
    parser.add_argument("out")
    parser.add_argument("--models", required=True)
    parser.add_argument("--source")
    parser.add_argument("--swapper")
    parser.add_argument("--emap")
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    cv2.setNumThreads(1)
    METER.seconds["import"] = time.process_time() - START

    detector = session(f"{args.models}/centerface.onnx")
    if args.mode == "enrol":
        picture = cv2.imread(args.picture)
        points = max(detect(picture, detector), key=lambda face: face[1])[2]
        np.save(args.out, embed(picture, points, session(f"{args.models}/mobilefacenet192.onnx")))
        return
    gate = session(f"{args.models}/open_nsfw.onnx")
    if args.mode == "swap":
        embedder = session(f"{args.models}/mobilefacenet192.onnx")
        swapper = session(args.swapper)
        source = np.load(args.source)
        latent = latent_of(source, args.emap)
    found, inference = 0, []
    for _ in range(args.repeat):
        METER.seconds["inference"] = 0
        picture = cv2.imread(args.picture)
        refuse(picture, gate)
        faces = detect(picture, detector)
        found = len(faces)
        if args.mode == "blur":
            picture = blur(picture, faces)
        else:
            for box, _, points in sorted(faces, key=lambda face: face[0][0] - face[0][2]):
                if source @ embed(picture, points, embedder) < 2:
                    picture = swap(picture, points, latent, swapper)
        cv2.imwrite(args.out, picture, [cv2.IMWRITE_JPEG_QUALITY, 92])
        inference.append(METER.seconds["inference"])
    start = {name: METER.seconds[name] for name in ("import", "load")}
    print(json.dumps({"inference": inference, "faces": found, "start": start}))


if __name__ == "__main__":
    main()
