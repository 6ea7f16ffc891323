//! Clip or picture: told by a file's first bytes, so that the root program parses nothing.

/// What the first bytes of a file say that it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A picture, or nothing that we know.
    Picture,
    /// MP4, QuickTime, or a container of clips that is refused by name.
    Clip,
    /// Raw frames, which can be read from a pipe.
    RawFrames,
}

impl Kind {
    /// By the first bytes, of which `limits::CLIP_HEAD` are enough.
    #[must_use]
    pub fn of(head: &[u8]) -> Self {
        let boxes: [&[u8]; 7] = [b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"styp"];
        let names: [&[u8]; 8] = [
            b"\x1aE\xdf\xa3",
            b"FLV",
            b"OggS",
            b"\x30\x26\xb2\x75",
            b"\0\0\x01\xba",
            b"\0\0\x01\xb3",
            b"\0\0\x01\x67",
            b"\0\0\0\x01",
        ];
        // A packet of a transport stream: no error, with a payload, not scrambled.
        let is_packet = !head.starts_with(b"GIF")
            && matches!(head, [b'G', pid, _, kind, ..] if pid & 0x80 == 0 && kind & 0xd0 == 0x10);
        let at = |from: usize, to: usize| head.get(from..to).unwrap_or_default();
        // AVIF and HEIC are pictures in the same boxes.
        let still = [&b"avif"[..], b"avis", b"heic", b"heix", b"mif1", b"msf1"];
        if head.starts_with(b"YUV4MPEG2") {
            Self::RawFrames
        } else if boxes.contains(&at(4, 8)) && !still.contains(&at(8, 12))
            || names.iter().any(|name| head.starts_with(name))
            || at(0, 4) == b"RIFF" && at(8, 12) == b"AVI "
            || is_packet
        {
            Self::Clip
        } else {
            Self::Picture
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clips_are_told_from_pictures_by_their_first_bytes() {
        for (head, kind) in [
            (&b"\0\0\0\x20ftypisom\0\0\x02\0"[..], Kind::Clip),
            (b"\0\0\0\x14ftypqt  ", Kind::Clip),
            (b"\0\0\x10\0moov", Kind::Clip),
            (b"\x1aE\xdf\xa3\x01\0\0\0", Kind::Clip),
            (b"RIFF....AVI LIST", Kind::Clip),
            (b"G@\x11\x10\0B\xf0\x25\0\x01\xc1\0", Kind::Clip),
            (b"\0\0\x01\x67\x42\0", Kind::Clip),
            (b"\x30\x26\xb2\x75\x8e\x66", Kind::Clip),
            (b"GIF89a\x10\0\x10\0", Kind::Picture),
            (b"Good morning", Kind::Picture),
            (b"\0\0\x01\0\x01\0\x10\x10", Kind::Picture),
            (b"YUV4MPEG2 W320 H", Kind::RawFrames),
            (b"RIFF....WEBPVP8 ", Kind::Picture),
            (b"\0\0\0\x1cftypavif", Kind::Picture),
            (b"\x89PNG\r\n\x1a\n", Kind::Picture),
            (b"ftyp", Kind::Picture),
            (b"", Kind::Picture),
        ] {
            assert_eq!(Kind::of(head), kind, "{head:?}");
        }
    }
}
