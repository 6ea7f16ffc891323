//! Makes malformed pictures from good ones: the same files for the same seed, no dependencies.
//!
//! Used by the codec's own tests and, as files, by the process test.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

/// One malformed file.
#[derive(Debug, Clone)]
pub struct Hostile {
    /// Short, unique, fit for a file name.
    pub name: String,
    pub bytes: Vec<u8>,
    /// True when no reader may take it for a picture; else it may be decoded or refused.
    pub refused: bool,
}

/// A small generator (xorshift64*), enough to choose places and bits.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15 | 1)
    }

    pub fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % most.max(1)
    }
}

#[derive(Debug, Default)]
struct Heap {
    files: Vec<Hostile>,
    prefix: String,
}

impl Heap {
    fn add(&mut self, refused: bool, name: impl std::fmt::Display, bytes: Vec<u8>) {
        self.files.push(Hostile { name: format!("{}-{name}", self.prefix), bytes, refused });
    }
}

/// Malformed variants of each good file (name, bytes), then bombs that need no good file.
/// Three good files give more than 300.
pub fn make(good: &[(&str, &[u8])], seed: u64) -> Vec<Hostile> {
    let mut heap = Heap::default();
    for (i, (name, bytes)) in good.iter().enumerate() {
        let mut dice = Dice::new(seed.wrapping_add(i as u64));
        (*name).clone_into(&mut heap.prefix);
        cuts(&mut heap, bytes);
        flips(&mut heap, bytes, &mut dice);
        magics(&mut heap, bytes);
        if bytes.starts_with(&[0xff, 0xd8]) {
            jpeg_lies(&mut heap, bytes);
        } else if bytes.starts_with(b"\x89PNG") {
            png_lies(&mut heap, bytes);
        } else if bytes.starts_with(b"RIFF") {
            webp_lies(&mut heap, bytes);
        }
    }
    bombs(&mut heap);
    heap.files
}

fn cuts(heap: &mut Heap, bytes: &[u8]) {
    for part in 1..20 {
        heap.add(true, format_args!("cut-{part:02}"), bytes[..bytes.len() * part / 20].to_vec());
    }
    for tail in [1, 2, 3, 4, 7] {
        let cut = bytes[..bytes.len().saturating_sub(tail)].to_vec();
        heap.add(true, format_args!("cut-last-{tail}"), cut);
    }
    for head in [1, 2, 3, 8, 12, 20, 33] {
        heap.add(true, format_args!("head-{head}"), bytes[..head.min(bytes.len() - 1)].to_vec());
    }
    let half = bytes.len() / 2;
    // WebP has no checksum, so there any data is some picture.
    let told = !bytes.starts_with(b"RIFF");
    heap.add(told, "cut-then-zeros", [&bytes[..half], &vec![0; half][..]].concat());
    heap.add(told, "cut-then-ones", [&bytes[..half], &vec![0xff; half][..]].concat());
}

fn flips(heap: &mut Heap, bytes: &[u8], dice: &mut Dice) {
    for n in 0..16 {
        let mut out = bytes.to_vec();
        let at = dice.below(out.len());
        out[at] ^= 1 << dice.below(8);
        heap.add(false, format_args!("flip-{n:02}"), out);
    }
    for n in 0..10 {
        let mut out = bytes.to_vec();
        let at = 12 + dice.below(200.min(out.len() - 12));
        out[at] = dice.below(256) as u8;
        heap.add(false, format_args!("head-byte-{n:02}"), out);
    }
    for n in 0..10 {
        let mut out = bytes.to_vec();
        for _ in 0..out.len() / 50 + 1 {
            let at = dice.below(out.len());
            out[at] = dice.below(256) as u8;
        }
        heap.add(false, format_args!("noise-{n:02}"), out);
    }
    for n in 0..6 {
        let (a, b) = (dice.below(bytes.len()), dice.below(bytes.len()));
        let (from, to) = (a.min(b), a.max(b));
        heap.add(false, format_args!("gone-{n}"), [&bytes[..from], &bytes[to..]].concat());
        heap.add(false, format_args!("twice-{n}"), [&bytes[..to], &bytes[from..]].concat());
    }
}

fn magics(heap: &mut Heap, bytes: &[u8]) {
    let foreign: [(&str, &[u8]); 5] = [
        ("as-gif", b"GIF89a"),
        ("as-tiff", b"II*\0\x08\0\0\0"),
        ("as-heic", b"\0\0\0\x18ftypheic"),
        ("as-pdf", b"%PDF-1.7\n"),
        ("as-text", b"hello, world\n"),
    ];
    for (name, magic) in foreign {
        let rest = bytes.get(magic.len()..).unwrap_or_default();
        heap.add(true, name, [magic, rest].concat());
    }
    let known: [(&str, &[u8]); 3] = [
        ("as-jpeg", b"\xff\xd8\xff\xe0"),
        ("as-png", b"\x89PNG\r\n\x1a\n"),
        ("as-webp", b"RIFF\x40\0\0\0WEBPVP8 "),
    ];
    for (name, magic) in known {
        if !bytes.starts_with(&magic[..3]) {
            heap.add(true, name, [magic, &bytes[magic.len().min(bytes.len())..]].concat());
        }
    }
    heap.add(false, "tail-garbage", [bytes, &[0x5a; 4096][..]].concat());
    heap.add(false, "tail-itself", [bytes, bytes].concat());
    heap.add(true, "before-garbage", [&[0; 16][..], bytes].concat());
}

/// Places of the markers before and behind the scans: (offset of 0xff, marker).
pub fn jpeg_markers(bytes: &[u8]) -> Vec<(usize, u8)> {
    let mut found = Vec::new();
    let mut at = 2;
    while at + 4 <= bytes.len() && bytes[at] == 0xff {
        let marker = bytes[at + 1];
        found.push((at, marker));
        if marker == 0xd9 {
            break;
        }
        at += 2 + usize::from(u16::from_be_bytes([bytes[at + 2], bytes[at + 3]]));
        if marker == 0xda {
            while at + 1 < bytes.len()
                && (bytes[at] != 0xff || matches!(bytes[at + 1], 0 | 0xd0..=0xd7))
            {
                at += 1;
            }
        }
    }
    found
}

fn patched(bytes: &[u8], at: usize, with: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[at..at + with.len()].copy_from_slice(with);
    out
}

fn jpeg_lies(heap: &mut Heap, bytes: &[u8]) {
    let markers = jpeg_markers(bytes);
    let place = |of: &dyn Fn(u8) -> bool| markers.iter().find(|m| of(m.1)).map(|m| m.0).unwrap();
    let frame = place(&|m| matches!(m, 0xc0..=0xc2));
    let scan = place(&|m| m == 0xda);
    for (name, size) in [
        ("size-0x0", [0u16, 0]),
        ("size-wide-0", [0, 100]),
        ("size-high-0", [100, 0]),
        ("size-65535", [65535, 65535]),
        ("size-16385", [1, 16385]),
        ("size-16k", [16384, 16384]),
    ] {
        let raw: Vec<u8> = size.iter().flat_map(|v| v.to_be_bytes()).collect();
        heap.add(true, name, patched(bytes, frame + 5, &raw));
    }
    let height = u16::from_be_bytes([bytes[frame + 5], bytes[frame + 6]]);
    heap.add(true, "higher", patched(bytes, frame + 5, &(height * 3 + 64).to_be_bytes()));
    heap.add(false, "lower", patched(bytes, frame + 5, &(height / 3 + 1).to_be_bytes()));
    heap.add(true, "precision-12", patched(bytes, frame + 4, &[12]));
    heap.add(true, "components-0", patched(bytes, frame + 9, &[0]));
    heap.add(true, "components-2", patched(bytes, frame + 9, &[2]));
    heap.add(true, "components-255", patched(bytes, frame + 9, &[255]));
    heap.add(true, "sampling-0", patched(bytes, frame + 11, &[0]));
    heap.add(true, "sampling-15", patched(bytes, frame + 11, &[0xff]));
    heap.add(false, "sampling-4", patched(bytes, frame + 11, &[0x44]));
    heap.add(false, "sampling-3", patched(bytes, frame + 11, &[0x31]));
    for code in [0xc3, 0xc5, 0xc9, 0xcb, 0xcf] {
        heap.add(true, format_args!("frame-{code:x}"), patched(bytes, frame + 1, &[code]));
    }
    heap.add(false, "frame-progressive", patched(bytes, frame + 1, &[0xc2]));
    heap.add(false, "frame-baseline", patched(bytes, frame + 1, &[0xc0]));
    for (at, marker) in markers.iter().copied().filter(|m| m.1 != 0xd9) {
        for length in [0u16, 1, 2, 3, 0xffff] {
            let name = format!("length-{at}-{marker:x}-{length}");
            heap.add(false, name, patched(bytes, at + 2, &length.to_be_bytes()));
        }
    }
    let after = frame + 2 + usize::from(u16::from_be_bytes([bytes[frame + 2], bytes[frame + 3]]));
    heap.add(true, "no-frame", [&bytes[..frame], &bytes[after..]].concat());
    heap.add(true, "two-frames", [&bytes[..scan], &bytes[frame..]].concat());
    heap.add(true, "no-scan", [&bytes[..scan], &[0xff, 0xd9]].concat());
    heap.add(true, "only-headers", bytes[..scan].to_vec());
    heap.add(true, "scan-components-0", patched(bytes, scan + 4, &[0]));
    heap.add(true, "scan-components-4", patched(bytes, scan + 4, &[4]));
    heap.add(true, "scan-name", patched(bytes, scan + 5, &[0xee]));
    heap.add(true, "scan-tables", patched(bytes, scan + 6, &[0xff]));
    let middle = scan + (bytes.len() - scan) / 2;
    heap.add(true, "cut-then-end", [&bytes[..middle], &[0xff, 0xd9]].concat());
    heap.add(true, "marker-in-scan", [&bytes[..middle], &[0xff, 0xd3], &bytes[middle..]].concat());
    heap.add(true, "unknown-in-scan", [&bytes[..middle], &[0xff, 2], &bytes[middle..]].concat());
    let once = &bytes[scan..bytes.len() - 2];
    let many = [&bytes[..bytes.len() - 2], &once.repeat(200), &[0xff, 0xd9][..]].concat();
    heap.add(true, "scans-201", many);
    let tables = markers.iter().find(|m| m.1 == 0xc4).unwrap().0;
    let end = tables + 2 + usize::from(u16::from_be_bytes([bytes[tables + 2], bytes[tables + 3]]));
    let flood = bytes[tables..end].repeat((3 << 20) / (end - tables));
    heap.add(true, "tables-3m", [&bytes[..scan], &flood, &bytes[scan..]].concat());
    let comment = [&[0xff, 0xfe, 0xff, 0xff][..], &[b'x'; 65533]].concat().repeat(40);
    heap.add(false, "comments-2m", [&bytes[..2], &comment, &bytes[2..]].concat());
    for (name, exif) in [
        (
            "exif-loop",
            &b"Exif\0\0II*\0\x08\0\0\0\x01\0\x69\x87\x04\0\x01\0\0\0\x08\0\0\0\0\0\0\0"[..],
        ),
        ("exif-far", b"Exif\0\0MM\0*\xff\xff\xff\xff"),
        ("exif-long", b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01\x03\0\x01\0\0\0\x06\0\0\0"),
    ] {
        let length = u16::try_from(exif.len() + 2).unwrap().to_be_bytes();
        let segment = [&[0xff, 0xe1], &length[..], exif].concat();
        heap.add(false, name, [&bytes[..2], &segment, &bytes[2..]].concat());
    }
}

/// A chunk with a right CRC.
pub fn png_chunk(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    let crc = crc32(&[&name[..], body].concat());
    [&length.to_be_bytes()[..], name, body, &crc.to_be_bytes()].concat()
}

pub fn png_header(width: u32, height: u32, depth: u8, colour: u8, interlaced: u8) -> Vec<u8> {
    let sides = [width.to_be_bytes(), height.to_be_bytes()].concat();
    let body = [&sides[..], &[depth, colour, 0, 0, interlaced]].concat();
    [b"\x89PNG\r\n\x1a\n".to_vec(), png_chunk(b"IHDR", &body)].concat()
}

/// The same chunks with right CRCs, so that what was damaged in them is looked at.
pub fn mended(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes[..bytes.len().min(8)].to_vec();
    let mut at = 8;
    while let Some(head) = bytes.get(at..at + 8) {
        let length = u32::from_be_bytes(head[..4].try_into().unwrap()) as usize;
        let Some(body) = bytes.get(at + 8..at + 8 + length) else { break };
        out.extend(png_chunk(head[4..].try_into().unwrap(), body));
        at += 12 + length;
    }
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// A zlib stream that unpacks to `length` zeros (rounded up to 258): one literal, then matches.
pub fn zeros(length: usize) -> Vec<u8> {
    let mut out = vec![0x78, 0x01];
    let (mut held, mut count) = (0u32, 0);
    let mut put = |value: u32, bits: u32| {
        held |= value << count;
        count += bits;
        while count >= 8 {
            out.push(held as u8);
            held >>= 8;
            count -= 8;
        }
    };
    put(1, 1);
    put(1, 2);
    // Fixed codes, high bit first: literal 0 is 00110000, length 258 is 11000101, distance 00000.
    put(0b0000_1100, 8);
    let matches = length.div_ceil(258);
    for _ in 0..matches {
        put(0b1010_0011, 8);
        put(0, 5);
    }
    put(0, 7);
    put(0, 7);
    let total = matches * 258 + 1;
    let adler = (total % 65521) << 16 | 1;
    out.extend_from_slice(&u32::try_from(adler).unwrap().to_be_bytes());
    out
}

fn png_lies(heap: &mut Heap, bytes: &[u8]) {
    let header = &bytes[16..29];
    let rest = &bytes[33..];
    let (depth, colour) = (header[8], header[9]);
    let with = |w: u32, h: u32| [png_header(w, h, depth, colour, 0), rest.to_vec()].concat();
    let width = u32::from_be_bytes(header[..4].try_into().unwrap());
    let height = u32::from_be_bytes(header[4..8].try_into().unwrap());
    heap.add(true, "size-0", with(0, 0));
    heap.add(true, "size-wide-0", with(0, height));
    heap.add(true, "size-31-bits", with(0x7fff_ffff, 0x7fff_ffff));
    heap.add(true, "size-32-bits", with(0xffff_ffff, 1));
    heap.add(true, "size-16k", with(16384, 16384));
    heap.add(true, "higher", with(width, height * 2 + 1));
    heap.add(true, "wider", with(width * 2 + 9, height));
    heap.add(false, "lower", with(width, height / 2 + 1));
    for (name, depth, colour, interlaced) in [
        ("depth-3", 3, colour, 0),
        ("depth-16", 16, colour, 0),
        ("colour-1", 8, 1, 0),
        ("colour-7", 8, 7, 0),
        ("no-palette", 8, 3, 0),
        ("interlaced-9", 8, colour, 9),
    ] {
        let head = png_header(width, height, depth, colour, interlaced);
        // A good file of that kind is no lie.
        let told = (depth, colour) != (header[8], header[9]) || interlaced == 9;
        heap.add(told, name, [head, rest.to_vec()].concat());
    }
    heap.add(
        false,
        "interlaced",
        [png_header(width, height, 8, colour, 1), rest.to_vec()].concat(),
    );
    heap.add(true, "crc-header", patched(bytes, 29, &[bytes[29] ^ 1]));
    heap.add(true, "crc-end", patched(bytes, bytes.len() - 1, &[bytes[bytes.len() - 1] ^ 1]));
    for length in [0u32, 1, 12, 0x7fff_ffff, 0xffff_ffff] {
        heap.add(
            true,
            format_args!("header-length-{length}"),
            patched(bytes, 8, &length.to_be_bytes()),
        );
        heap.add(
            true,
            format_args!("chunk-length-{length}"),
            patched(bytes, 33, &length.to_be_bytes()),
        );
    }
    let end = png_chunk(b"IEND", &[]);
    heap.add(true, "only-headers", [&bytes[..33], &end].concat());
    heap.add(true, "no-end", bytes[..bytes.len() - 12].to_vec());
    heap.add(true, "two-headers", [&bytes[..33], &bytes[8..]].concat());
    heap.add(
        true,
        "header-late",
        [&bytes[..8], &png_chunk(b"tEXt", b"a\0b"), &bytes[8..]].concat(),
    );
    heap.add(true, "unknown-critical", [&bytes[..33], &png_chunk(b"ABCD", b"x"), rest].concat());
    heap.add(
        true,
        "animated",
        [&bytes[..33], &png_chunk(b"acTL", &[0, 0, 0, 9, 0, 0, 0, 0]), rest].concat(),
    );
    let packed = zeros(48 << 20);
    let profile = [b"icc\0\0", &packed[..]].concat();
    let text = [b"AIGC\0\0", &packed[..]].concat();
    let itxt = [b"XML:com.adobe.xmp\0\x01\0\0\0", &packed[..]].concat();
    heap.add(false, "bomb-profile", [&bytes[..33], &png_chunk(b"iCCP", &profile), rest].concat());
    heap.add(false, "bomb-text", [&bytes[..33], &png_chunk(b"zTXt", &text), rest].concat());
    heap.add(false, "bomb-xmp", [&bytes[..33], &png_chunk(b"iTXt", &itxt), rest].concat());
    let pixels = [png_header(16, 16, 8, 2, 0), png_chunk(b"IDAT", &packed), end.clone()].concat();
    heap.add(false, "bomb-pixels", pixels);
    let empty = png_chunk(b"IDAT", &[]).repeat(50_000);
    heap.add(true, "empty-data", [&bytes[..33], &empty, &end].concat());
    let texts = png_chunk(b"tEXt", b"Comment\0x").repeat(50_000);
    heap.add(false, "texts-50k", [&bytes[..33], &texts, rest].concat());
}

fn riff(chunks: &[u8]) -> Vec<u8> {
    let length = u32::try_from(chunks.len() + 4).unwrap();
    [b"RIFF", &length.to_le_bytes()[..], b"WEBP", chunks].concat()
}

fn riff_chunk(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    let pad = vec![0; body.len() % 2];
    [&name[..], &length.to_le_bytes(), body, &pad].concat()
}

fn webp_lies(heap: &mut Heap, bytes: &[u8]) {
    for length in [0u32, 4, 12, 0x7fff_fffe, 0xffff_fffe] {
        heap.add(
            true,
            format_args!("riff-length-{length}"),
            patched(bytes, 4, &length.to_le_bytes()),
        );
    }
    for length in [0u32, 1, 5, 0x7fff_fffe, 0xffff_ffff] {
        heap.add(
            true,
            format_args!("chunk-length-{length}"),
            patched(bytes, 16, &length.to_le_bytes()),
        );
    }
    let picture = &bytes[12..];
    let canvas = |flags: u8, w: u32, h: u32| {
        let sides = [&w.to_le_bytes()[..3], &h.to_le_bytes()[..3]].concat();
        riff_chunk(b"VP8X", &[&[flags, 0, 0, 0][..], &sides].concat())
    };
    if matches!(bytes.get(12..16), Some(b"VP8 " | b"VP8L")) {
        heap.add(true, "canvas-other", riff(&[&canvas(0, 99, 99), picture].concat()));
        heap.add(true, "canvas-huge", riff(&[&canvas(0, 0xff_ffff, 0xff_ffff), picture].concat()));
        let moving = [&canvas(2, 9, 9), &riff_chunk(b"ANIM", &[0; 6]), picture].concat();
        heap.add(true, "animated", riff(&moving));
        let frames = riff_chunk(b"ANMF", &[0; 24]).repeat(10_000);
        heap.add(true, "frames-10k", riff(&[&canvas(2, 9, 9), &frames[..], picture].concat()));
        for size in [[0u8, 0, 0, 0], [0xff; 4]] {
            let at = if bytes[15] == b' ' { 26 } else { 21 };
            heap.add(false, format_args!("size-{:x}", size[0]), patched(bytes, at, &size));
        }
        for body in [2, 10, 30] {
            let short = riff_chunk(bytes[12..16].try_into().unwrap(), &bytes[20..20 + body]);
            heap.add(true, format_args!("short-{body}"), riff(&short));
        }
    }
    heap.add(true, "no-pixels", riff(&canvas(0, 9, 9)));
    heap.add(true, "empty", riff(&[]));
    heap.add(true, "unknown-first", riff(&riff_chunk(b"ABCD", &[0; 50])));
}

/// Files that are small and promise much, and files that are hardly anything.
fn bombs(heap: &mut Heap) {
    "bomb".clone_into(&mut heap.prefix);
    heap.add(true, "empty", Vec::new());
    heap.add(true, "zeros", vec![0; 4096]);
    heap.add(true, "ones", vec![0xff; 4096]);
    heap.add(true, "text", b"not a picture\n".to_vec());
    let data = png_chunk(b"IDAT", &zeros(1 << 16));
    let end = png_chunk(b"IEND", &[]);
    for (side, depth) in [(16_384, 8), (100_000, 16), (0x7fff_ffff, 1)] {
        let head = png_header(side, side, depth, 2, 0);
        heap.add(true, format_args!("png-{side}"), [&head[..], &data, &end].concat());
    }
    for (name, body) in [
        (b"VP8L", &[0x2f, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0, 0][..]),
        (b"VP8 ", &[0x10, 0, 0, 0x9d, 1, 0x2a, 0xff, 0x3f, 0xff, 0x3f, 0, 0, 0, 0]),
        (b"VP8X", &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
    ] {
        let name_text = String::from_utf8_lossy(name).trim().to_owned();
        heap.add(true, format_args!("webp-{name_text}"), riff(&riff_chunk(name, body)));
    }
    heap.add(true, "jpeg-65500", scans(65_500, 65_500, 0));
    heap.add(true, "jpeg-8k-99-scans", scans(8_000, 8_000, 99));
    heap.add(true, "jpeg-500-scans", scans(64, 64, 500));
}

/// A progressive grey JPEG file: one scan of DC values, then refinements that say nothing.
pub fn scans(width: u16, height: u16, refinements: usize) -> Vec<u8> {
    let sides = [height.to_be_bytes(), width.to_be_bytes()].concat();
    let mut out = vec![0xff, 0xd8, 0xff, 0xdb, 0, 67, 0];
    out.extend_from_slice(&[1; 64]);
    out.extend_from_slice(&[0xff, 0xc2, 0, 11, 8]);
    out.extend_from_slice(&sides);
    out.extend_from_slice(&[1, 1, 0x11, 0]);
    // DC: code 0 is "no change". AC: code 0 is a run of at least 16,384 empty blocks.
    for (place, symbol) in [(0x00, 0x00), (0x10, 0xe0)] {
        out.extend_from_slice(&[0xff, 0xc4, 0, 20, place, 1]);
        out.extend_from_slice(&[0; 15]);
        out.push(symbol);
    }
    let blocks = usize::from(width).div_ceil(8) * usize::from(height).div_ceil(8);
    out.extend_from_slice(&[0xff, 0xda, 0, 8, 1, 1, 0x00, 0, 0, 0x00]);
    out.resize(out.len() + blocks.min(1 << 20).div_ceil(8), 0);
    for _ in 0..refinements {
        out.extend_from_slice(&[0xff, 0xda, 0, 8, 1, 1, 0x00, 1, 63, 0x00]);
        out.resize(out.len() + blocks.div_ceil(16_384) * 2, 0);
    }
    out.extend_from_slice(&[0xff, 0xd9]);
    out
}
