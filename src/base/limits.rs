//! Every hard bound of the product, in one place.

/// Longest side of a picture that is decoded, in pixels.
pub const PICTURE_SIDE: u32 = 16_384;
/// Most pixels of a picture that is decoded (64 Mpx: 192 MB as RGB8).
pub const PICTURE_PIXELS: u64 = 64_000_000;
/// Largest picture file that is read, in bytes.
pub const PICTURE_FILE: u64 = 128 << 20;
/// Largest ICC profile that travels with a picture, in bytes.
pub const ICC_PROFILE: usize = 1 << 20;
/// Largest XMP packet that is read, in bytes.
pub const XMP_READ: usize = 1 << 20;
/// Largest XMP packet that is written: what one JPEG segment holds, in bytes.
pub const XMP_WRITTEN: usize = 65_502;
/// Longest `AIGC` record, in bytes.
pub const AIGC: usize = 4096;
/// Most scans of one JPEG file.
pub const JPEG_SCANS: u32 = 100;
/// Most bytes of tables in one JPEG file.
pub const JPEG_TABLES: usize = 1 << 20;
/// Most work of one JPEG file: scans times pixels.
pub const JPEG_WORK: u64 = 1 << 30;
/// Largest clip file that is read or written, in bytes.
pub const CLIP_FILE: u64 = 64 << 30;
/// Frames from one IDR to the next in clips that are written; the invisible mark is held as long.
pub const CLIP_GOP: u64 = 60;
/// Most GOPs of a clip from which `verify` reads marks; of a longer clip they are spread over it.
pub const CLIP_CHECKED: u64 = 60;
/// Frames of one segment: what a crash in the middle of a clip costs at most. Whole GOPs.
pub const CLIP_SEGMENT: u64 = 2 * CLIP_GOP;
/// Largest state of what follows faces at the end of a clip's segment, in bytes.
pub const CLIP_STATE: usize = 128 << 10;
/// Largest state that a clip's worker leaves behind there, counts and marks included, in bytes.
pub const CLIP_RESUME: usize = 160 << 10;
/// Most bytes that are read from a pipe to tell what comes.
pub const CLIP_HEAD: usize = 16;
/// Most entries of each list in a clip's report.
pub const CLIP_LISTED: usize = 64;
/// Longest side of a clip's frame, in pixels.
pub const CLIP_SIDE: u32 = 4096;
/// Most pixels of a clip's frame.
pub const CLIP_PIXELS: u64 = 4096 * 2304;
/// Most frames of a clip, and most entries of one of its tables: ten hours at 60 a second.
pub const CLIP_SAMPLES: usize = 1 << 21;
/// Largest index of a clip (`moov`, or one `moof`), in bytes; its tables take at most 4 times this.
pub const CLIP_INDEX: u64 = 64 << 20;
/// Most boxes at the top of an MP4 file.
pub const CLIP_BOXES: u64 = 1 << 19;
/// Most tracks of an MP4 file.
pub const CLIP_TRACKS: usize = 64;
/// Largest coded frame, in bytes: what the decoder takes.
pub const CLIP_UNIT: usize = 7_000_000;
/// Most frames that wait because another one is shown first: what H.264 allows, and one.
pub const CLIP_HELD: usize = 17;
/// Longest header line of a Y4M stream or of one of its frames, in bytes.
pub const Y4M_LINE: usize = 1024;
/// Most outputs of one live pipeline.
pub const LIVE_OUTPUTS: usize = 8;
/// Pictures that a JPEG output of a live pipeline holds at once.
pub const LIVE_SLOTS: u8 = 2;
/// Most frames of one file of a recording: ten minutes at 30 a second.
pub const LIVE_SEGMENT: u32 = 18_000;
/// Frames that wait to be worked on; a newer one takes the place of the oldest.
pub const LIVE_QUEUE: usize = 2;
/// Most controls that a camera is set to at once, and most formats that are told of one.
pub const CAMERA_LISTED: usize = 256;
/// Buffers that a camera's driver is asked for.
pub const CAMERA_BUFFERS: u32 = 4;
/// Largest model file that is read, in bytes.
pub const MODEL_FILE: u64 = 1 << 30;
/// Largest message on the wire between daemon and worker, in bytes.
pub const WIRE_MESSAGE: usize = 192 << 10;
/// Most file descriptors that travel with one message.
pub const WIRE_FDS: usize = 48;
/// Most faces whose embeddings are asked for in one `Judge` request.
pub const JUDGED: usize = 32;
/// Longest text of a failure, a reason or a fact on the wire, in bytes; longer is cut.
pub const WIRE_TEXT: usize = 96;
/// Longest message of a failure on the wire, in bytes; longer is cut.
pub const WIRE_FAILURE: usize = 2048;
/// Most faces that are kept from one picture, best first.
pub const FACES: usize = 512;
/// Most candidates of a detector before non-maximum suppression, best first.
pub const CANDIDATES: usize = 20_000;
/// Most identities in a gallery that the worker holds.
pub const IDENTITIES: usize = 64;
/// Most rules, and most zones, in one recipe.
pub const RULES: usize = 64;
/// Most corners of a zone.
pub const ZONE_POINTS: usize = 64;
/// Longest identity, model or rule name, in bytes.
pub const NAME: usize = 64;
/// Widest embedding, in values.
pub const EMBEDDING: usize = 1024;
/// Largest configuration, rules or consent file, in bytes.
pub const TEXT_FILE: u64 = 256 << 10;
/// Longest line of the audit record, in bytes.
pub const AUDIT_LINE: usize = 128 << 10;
/// Rows of the audit record that one answer holds at most.
pub const AUDIT_ANSWER: usize = 10_000;
/// Rows after which the audit record is sealed into a segment.
pub const AUDIT_SEGMENT: u64 = 1_000_000;
/// Days for which a sealed segment of the audit record is kept at least.
pub const AUDIT_DAYS: u64 = 180;
/// Rows that are written in one transaction at most.
pub const STORE_GROUP: usize = 64;
/// Rows that may wait to be written; more wait at their maker.
pub const STORE_QUEUE: usize = 256;
/// Largest log of the database before it is written back, in bytes.
pub const STORE_LOG: u64 = 4 << 20;
/// Most consent records of one source.
pub const CONSENTS: usize = 64;
/// Largest tensor a session may give or take, in values.
pub const TENSOR_VALUES: usize = 64 << 20;
/// Largest signed envelope (DSSE, JSON), in bytes.
pub const ENVELOPE: usize = 256 << 10;
/// Most signatures of one envelope.
pub const SIGNATURES: usize = 16;
/// Most devices that one model package is sealed for.
pub const WRAPS: usize = 4096;
/// Most keys of a trust store.
pub const TRUSTED_KEYS: usize = 256;
/// Most inputs, and most outputs, of a model that are told of.
pub const SURVEYED: usize = 64;
/// Most pictures on which two models are compared.
pub const MEASURED: usize = 32;
/// Most cameras of one configuration.
pub const CAMERAS: usize = 16;
/// Most pipelines of one configuration.
pub const PIPELINES: usize = 32;
/// Most outputs of one configuration.
pub const OUTPUTS: usize = 64;
/// Most profiles of one configuration.
pub const PROFILES: usize = 16;
/// Longest name of a camera, pipeline, output or profile, in bytes.
pub const SECTION_NAME: usize = 32;
/// Longest path of a Unix socket, in bytes.
pub const SOCKET_PATH: usize = 107;
/// Longest request on the control socket, in bytes.
pub const CONTROL_LINE: usize = 512 << 10;
/// Longest answer on the control socket, in bytes.
pub const CONTROL_ANSWER: usize = 16 << 20;
/// Connections to the control socket at once; more are told to come again.
pub const CONTROL_PEERS: usize = 8;
/// Most user ids that may speak to the daemon.
pub const PEERS: usize = 64;
/// Most folders that jobs may read from, or write to.
pub const FOLDERS: usize = 32;
/// Most groups, and most pools, of one device.
pub const GROUPS: usize = 32;
