//! Clips that are refused by name, that are damaged, and that few programs write.

#![allow(clippy::unwrap_used)] // Helpers here only serve tests.

mod support;

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write as _};
use std::path::Path;

use mien_base::error::ErrorKind;
use mien_media::clip::{FrameSource, Timing};
use mien_media::mp4::{self, Finish};
use mien_media::open;
use mien_pixels::i420::I420;
use support::{Folder, SHORT as SOURCE, ffmpeg, refused, remake, times};

const TONE: &str = "-f lavfi -i sine=f=440:d=3";
const H264: &str = "-pix_fmt yuv420p -c:v libx264";

fn read(path: &Path) -> mien_media::errors::Result<Box<dyn FrameSource>> {
    open::open(Box::new(File::open(path).unwrap()))
}

/// Where four letters stand in a file.
fn find(bytes: &[u8], kind: &[u8; 4]) -> usize {
    bytes.windows(4).position(|w| w == kind).unwrap()
}

#[test]
#[ignore = "needs ffmpeg: tests/run installs it"]
fn what_is_not_read_is_refused_by_name_with_the_command_that_converts_it() {
    let folder = Folder::new("refused");
    for (made, name, words) in refused() {
        let path = folder.file(name);
        ffmpeg(&format!("{SOURCE} {made}"), &path);
        let error = read(&path).err().unwrap_or_else(|| panic!("{name} is read"));
        let text = error.to_string();
        assert!(text.contains(words) && text.contains("is not read"), "{name}: {text}");
        assert!(text.contains("ffmpeg -i IN"), "{name}: {text}");
        assert_eq!(error.kind(), ErrorKind::BadInput);
    }
    let (whole, path) = (folder.file("open.mp4"), folder.file("opencut.mp4"));
    ffmpeg(&format!("{SOURCE} {H264} -bf 3 -g 8 -x264-params open-gop=1:scenecut=0"), &whole);
    ffmpeg(&format!("-ss 0.7 -i {} -c copy", whole.display()), &path);
    assert!(read(&path).err().unwrap().to_string().contains("does not begin with an IDR"));
    let path = folder.file("sound.mp4");
    ffmpeg(&format!("{TONE} -c:a aac"), &path);
    assert!(read(&path).err().unwrap().to_string().contains("without pictures"));
}

#[test]
#[ignore = "needs ffmpeg: tests/run installs it"]
fn the_advised_commands_give_clips_that_are_read() {
    let folder = Folder::new("advised");
    for (made, name) in [
        ("-c:v libx265 -x265-params log-level=none -pix_fmt yuv420p10le", "hevc.mp4"),
        ("-c:v libx264 -pix_fmt yuv420p -flags +ildct+ilme", "fields.mp4"),
    ] {
        let (path, out) = (folder.file(name), folder.file("out.mp4"));
        ffmpeg(&format!("{SOURCE} {TONE} {made} -c:a aac"), &path);
        let text = read(&path).err().unwrap().to_string();
        let command = text.split("ffmpeg ").nth(1).unwrap().trim_end_matches(" OUT.mp4");
        ffmpeg(&command.replace("IN", path.to_str().unwrap()), &out);
        assert_eq!(read(&out).unwrap().info().frames, Some(25), "{name}");
    }
}

#[test]
#[ignore = "needs ffmpeg: tests/run installs it"]
fn damaged_files_say_what_is_wrong() {
    let folder = Folder::new("damaged");
    let (path, broken) = (folder.file("in.mp4"), folder.file("broken.mp4"));
    ffmpeg(&format!("{SOURCE} {H264}"), &path);
    let good = fs::read(&path).unwrap();
    let (moov, stsz, stts) = (find(&good, b"moov"), find(&good, b"stsz"), find(&good, b"stts"));
    let stsc = find(&good, b"stsc");
    let with = |at: usize, bytes: &[u8]| {
        let mut all = good.clone();
        all[at..at + bytes.len()].copy_from_slice(bytes);
        all
    };
    for (name, bytes, words) in [
        (
            "no index",
            good[..moov - 4].to_vec(),
            "no index (moov), as when a recording was not finished",
        ),
        ("cut index", good[..moov + 300].to_vec(), "box moov is not whole"),
        ("a lying size of the index", with(moov - 4, &[0x7f; 4]), "box moov is not whole"),
        (
            "a frame beyond the end",
            with(stsz + 16, &[0x7f, 0, 0, 0]),
            "frame 0 of 25 reaches beyond it",
        ),
        (
            "a lying count of sizes",
            with(stsz + 12, &[0xff; 4]),
            "states 4294967295 entries and holds fewer",
        ),
        ("a lying count of times", with(stts + 8, &[0xff; 4]), "holds fewer"),
        ("chunks out of order", with(stsc + 12, &[0, 0, 0, 9]), "chunks have no first"),
        ("an unknown description", with(stsc + 20, &[0, 0, 0, 9]), "no sample description"),
        (
            "4,294,967,295 frames of one size",
            with(stsz + 8, &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]),
            "chunks hold fewer",
        ),
    ] {
        fs::write(&broken, bytes).unwrap();
        let error = read(&broken).err().unwrap_or_else(|| panic!("{name} is read"));
        let text = error.to_string();
        assert!(text.contains(words), "{name}: {text}");
        assert_eq!(error.kind(), ErrorKind::BadInput, "{name}");
    }
}

#[test]
#[ignore = "needs ffmpeg: tests/run installs it"]
fn what_few_programs_write_is_read_as_well() {
    let folder = Folder::new("rare");
    let (path, rare, out) =
        (folder.file("in.mp4"), folder.file("rare.mp4"), folder.file("out.mp4"));
    // Parameter sets in the samples only: avc3 without any in its configuration.
    ffmpeg(&format!("{SOURCE} {H264} -bsf:v dump_extra=freq=k"), &path);
    let mut bytes = fs::read(&path).unwrap();
    let avc1 = find(&bytes, b"avc1");
    let entry = if bytes[avc1 + 4..avc1 + 8] == [0, 0, 2, 0] { avc1 + 4 } else { avc1 };
    let avc1 = entry + bytes[entry..].windows(4).position(|w| w == b"avc1").unwrap_or(0);
    let avcc = find(&bytes, b"avcC");
    bytes[avc1..avc1 + 4].copy_from_slice(b"avc3");
    bytes[avcc + 9] = 0xe0;
    bytes[avcc + 10] = 0;
    fs::write(&rare, &bytes).unwrap();
    let made = remake(&rare, &folder, &out).unwrap();
    assert_eq!((made.frames, times(&out)), (25, times(&path)), "avc3");

    // A last sample of no bytes is no frame.
    ffmpeg(&format!("{SOURCE} {H264} -bf 0"), &path);
    let mut bytes = fs::read(&path).unwrap();
    let last = find(&bytes, b"stsz") + 16 + 24 * 4;
    bytes[last..last + 4].fill(0);
    fs::write(&rare, &bytes).unwrap();
    let made = remake(&rare, &folder, &out).unwrap();
    assert_eq!((made.frames, &times(&out)[..23]), (24, &times(&path)[..23]), "no bytes");

    // Frames beyond 4 GB: the index is moved in front of a hole.
    ffmpeg(&format!("{SOURCE} {H264} -movflags +faststart"), &path);
    let bytes = fs::read(&path).unwrap();
    let far = far_away(&bytes);
    let mut file = File::create(&rare).unwrap();
    let (head, data, at) = far;
    file.write_all(&head).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&data).unwrap();
    let made = remake(&rare, &folder, &out).unwrap();
    assert_eq!((made.frames, times(&out)), (25, times(&path)), "64-bit offsets");
}

/// A faststart file whose frames begin at 5 GB: its new head, its data, and where that stands.
fn far_away(bytes: &[u8]) -> (Vec<u8>, Vec<u8>, u64) {
    const FAR: u64 = 5 << 30;
    let mdat = find(bytes, b"mdat");
    let stco = find(bytes, b"stco");
    let count = u32::from_be_bytes(bytes[stco + 8..stco + 12].try_into().unwrap()) as usize;
    let mut co64 = Vec::new();
    for at in 0..count {
        let old = &bytes[stco + 12 + 4 * at..stco + 16 + 4 * at];
        let old = u64::from(u32::from_be_bytes(old.try_into().unwrap()));
        co64.extend_from_slice(&(old - (mdat as u64 - 4) + FAR).to_be_bytes());
    }
    let mut head = bytes[..mdat - 4].to_vec();
    head[stco..stco + 4].copy_from_slice(b"co64");
    head.splice(stco + 12..stco + 12 + 4 * count, co64);
    for kind in [b"co64", b"stbl", b"minf", b"mdia", b"trak", b"moov"] {
        let at = find(&head, kind) - 4;
        let size = u32::from_be_bytes(head[at..at + 4].try_into().unwrap()) + 4 * count as u32;
        head[at..at + 4].copy_from_slice(&size.to_be_bytes());
    }
    let free = FAR - head.len() as u64;
    head.extend_from_slice(b"\0\0\0\x01free");
    head.extend_from_slice(&free.to_be_bytes());
    (head, bytes[mdat - 4..].to_vec(), FAR)
}

#[test]
#[ignore = "needs ffmpeg: tests/run installs it"]
fn raw_frames_of_ffmpeg_become_a_clip_and_the_reverse() {
    let folder = Folder::new("raw");
    let (raw, clip, back) =
        (folder.file("in.y4m"), folder.file("out.mp4"), folder.file("back.y4m"));
    ffmpeg("-f lavfi -i testsrc2=s=176x144:r=30000/1001:d=1 -pix_fmt yuv420p", &raw);
    let made = remake(&raw, &folder, &clip).unwrap();
    assert_eq!((made.frames, times(&clip)[29]), (30, (29 * 1001, 1001)));
    assert_eq!(support::probe(&clip, "v:0", "stream=time_base"), "1/30000\n");
    let mut source = read(&clip).unwrap();
    let info = source.info().clone();
    let to = File::create(&back).unwrap();
    let mut writer = Box::new(mien_media::y4m::Writer::new(to, &info, info.size).unwrap());
    let mut frame = I420::default();
    while let Some(timing) = source.next(&mut frame).unwrap() {
        use mien_media::clip::FrameSink;
        writer.push(&frame, timing, false).unwrap();
    }
    mien_media::clip::FrameSink::finish(writer).unwrap();
    assert_eq!(support::probe(&back, "v:0", "stream=r_frame_rate"), "30000/1001\n");
    assert_eq!(read(&back).unwrap().info().size, info.size);
    assert_eq!(times(&back).len(), 30);
}

#[test]
#[ignore = "needs ffmpeg: tests/run installs it"]
fn seeking_among_b_frames_and_open_gops_gives_the_frames_of_reading_through() {
    let folder = Folder::new("seek");
    let path = folder.file("in.mp4");
    for extra in ["-bf 3 -g 10", "-bf 5 -g 12 -x264-params open-gop=1", "-g 1", "-bf 0 -g 7"] {
        ffmpeg(&format!("{SOURCE} -vf noise=alls=9:allf=t {H264} {extra}"), &path);
        let mut frames = Vec::new();
        let (mut through, mut frame) = (read(&path).unwrap(), I420::default());
        while let Some(timing) = through.next(&mut frame).unwrap() {
            frames.push((timing, frame.clone()));
        }
        let mut source = read(&path).unwrap();
        for number in [3, 14, 13, 24, 0, 11, 9, 10, 23] {
            source.seek(frames[number].0.pts - 1).unwrap();
            for then in frames[number..].iter().take(4) {
                let timing: Timing = source.next(&mut frame).unwrap().unwrap();
                assert_eq!(timing, then.0, "{extra}: {number}");
                assert!(frame == then.1, "{extra}: frame {number} differs");
            }
        }
    }
}

#[test]
#[ignore = "needs ffmpeg: tests/run installs it"]
fn sound_is_cut_to_the_range_and_stays_in_step() {
    let folder = Folder::new("range");
    let (path, segments, out) =
        (folder.file("in.mp4"), folder.file("segments"), folder.file("out.mp4"));
    let source = "-f lavfi -i testsrc2=s=64x64:r=25:d=3";
    ffmpeg(&format!("{source} {TONE} {H264} -c:a aac"), &path);
    let mut from = read(&path).unwrap();
    let info = from.info().clone();
    let second = i64::from(info.timescale);
    let mut segments = support::scratch(&segments);
    let rate = mien_media::h264::encode::Rate::like(&info);
    let mut writer = mp4::Writer::new(segments.try_clone().unwrap(), &info, rate).unwrap();
    from.seek(second).unwrap();
    let mut frame = I420::default();
    for number in 0..25 {
        use mien_media::clip::FrameSink;
        let timing = from.next(&mut frame).unwrap().unwrap();
        writer.push(&frame, timing, number == 0).unwrap();
    }
    let bytes = mien_media::clip::FrameSink::finish(Box::new(writer)).unwrap().bytes;
    let mut input = File::open(&path).unwrap();
    let finish = Finish { range: Some((second, Some(2 * second))), ..Finish::default() };
    let mut to = File::create(&out).unwrap();
    mp4::join(&mut segments, bytes, &info, Some(&mut input), &finish, &mut to).unwrap();
    let samples = |path: &Path, cut: &str| {
        let raw = folder.file("raw.pcm");
        ffmpeg(
            &format!("-i {} -map 0:a -af aresample=async=0{cut} -f s16le -ac 1", path.display()),
            &raw,
        );
        fs::read(raw)
            .unwrap()
            .chunks(2)
            .map(|s| i16::from_le_bytes([s[0], s[1]]))
            .collect::<Vec<_>>()
    };
    let (whole, part) = (samples(&path, ""), samples(&out, ""));
    assert!(part.len().abs_diff(44_100) < 1100, "{} samples", part.len());
    // A tone is in step when it is the same wave; the first packet lacks the one before it.
    let off = (2048..40_000).map(|at| part[at].abs_diff(whole[44_100 + at])).max().unwrap();
    assert!(off < 400, "off by {off}");
    assert_eq!(times(&out).first().unwrap().0, 0);
}
