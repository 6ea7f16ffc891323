//! When the detector looks: cadence, change, scene cuts and stillness, from a thumbnail of luma.

use mien_pixels::geometry::Rect;
use mien_pixels::i420::Cells;
use mien_pixels::view::View;

/// A scene's first frames are all looked at.
const SETTLE: u64 = 3;
/// Frames from one look to the next where nothing else asks for one.
pub const CADENCE: u64 = 8;
/// The same where blocks change that keep changing.
const BUSY: u64 = 4;
/// For so many frames after a change a block is busy.
const BUSY_FOR: u64 = 30;
/// So many blocks around one that changes are busy with it: motion goes on where it is.
const AROUND: usize = 2;
/// When a larger share of all blocks changes, the camera moves, and all are busy.
const MOVES: f32 = 0.3;
/// Frames without a look where nothing at all moves.
const STILL: u64 = 48;
/// A block has changed when its mean luma moved by so many sixteenths of a level,
const CHANGED: u16 = 7 * Cells::ONE;
/// and stirred from here on.
const STIRRED: u16 = 2 * Cells::ONE;
/// A cut: mean levels by which blocks moved since the last frame, the share of blocks that moved
/// by `CUT_BLOCK` levels, and how much more that is than the frame before.
const CUT: f32 = 15.0;
const CUT_BLOCK: u8 = 9;
const CUT_SHARE: f32 = 0.6;
const CUT_LEAP: f32 = 2.5;
/// Below this shorter side blocks are smaller.
const SMALL: u32 = 400;

/// What a frame's thumbnail says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glance {
    /// A scene begins.
    pub scene: bool,
    /// The detector must look at this frame.
    pub look: bool,
    /// Nothing has moved since the last look, so that what was found then still stands.
    pub still: bool,
}

/// What else asks for a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Asks {
    /// A face is lost, or the last look failed.
    pub doubt: bool,
    /// No frame follows in this segment.
    pub last: bool,
}

/// What the thumbnail of a live frame says, of which no later frame is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stir {
    /// A scene begins.
    pub scene: bool,
    /// Something has moved since the last look, or that is too long ago to say.
    pub stirred: bool,
    /// Something has moved where no face is known to be.
    pub elsewhere: bool,
}

/// Thumbnails of the newest frame, the one before, and the one that was looked at last.
#[derive(Debug, Default)]
pub struct Watch {
    now: Cells,
    before: Vec<u8>,
    leap: f32,
    seen: Vec<u16>,
    /// Of the frame that somebody looks at just now.
    asked: Vec<u16>,
    busy: Vec<u64>,
    known: Vec<bool>,
    looked: Option<u64>,
    scene: Option<u64>,
}

impl Watch {
    /// Compares a frame's luma with those before. `known` are the regions in which faces are known
    /// to be, whatever happens there.
    pub fn glance(
        &mut self,
        frame: u64,
        luma: View<'_, 1>,
        known: impl Iterator<Item = Rect>,
        asks: Asks,
    ) -> Glance {
        let scene = self.take_in(frame, luma);
        if scene {
            self.busy.fill(0);
        }
        let Some(looked) = self.looked else {
            return Glance { scene, look: true, still: false };
        };
        self.mask(known);
        let (fresh, busy, stirred) = self.compare(frame);
        let since = frame.saturating_sub(looked);
        let settling = self.scene.is_some_and(|s| frame < s + SETTLE);
        let still = !stirred && !asks.doubt && !settling && since < STILL;
        let due = since >= CADENCE || asks.last;
        let look = settling || asks.doubt || fresh || (busy && since >= BUSY) || (due && !still);
        Glance { scene, look, still: due && still }
    }

    /// Makes a frame the latest; true when a scene begins with it.
    fn take_in(&mut self, frame: u64, luma: View<'_, 1>) -> bool {
        let block = if luma.size().short_side() < SMALL { 8 } else { 16 };
        self.now.means(luma, block);
        let scene = self.scene.is_none() || self.is_cut();
        if scene {
            self.scene = Some(frame);
            self.looked = None;
        }
        self.busy.resize(self.now.values().len(), 0);
        self.before.clear();
        self.before.extend(self.now.values().iter().map(|v| level(*v)));
        scene
    }

    /// As `glance`, for frames that leave before the next one is known.
    pub fn compare_live(
        &mut self,
        frame: u64,
        luma: View<'_, 1>,
        known: impl Iterator<Item = Rect>,
    ) -> Stir {
        let scene = self.take_in(frame, luma);
        let Some(looked) = self.looked else {
            return Stir { scene, stirred: true, elsewhere: true };
        };
        self.mask(known);
        let (fresh, busy, stirred) = self.compare(frame);
        let since = frame.saturating_sub(looked);
        Stir { scene, stirred: stirred || since >= STILL, elsewhere: fresh || busy }
    }

    /// Somebody begins to look at the frame of the last `stir`.
    pub fn ask(&mut self) {
        self.asked.clear();
        self.asked.extend_from_slice(self.now.values());
    }

    /// The look that was asked for worked; its frame is this one.
    pub fn answered(&mut self, frame: u64) {
        // Of a scene that is over it says nothing.
        if self.scene.is_some_and(|scene| scene <= frame) {
            std::mem::swap(&mut self.seen, &mut self.asked);
            self.looked = Some(frame);
        }
    }

    /// The detector has looked at the newest frame.
    pub fn looked(&mut self, frame: u64) {
        if self.looked.is_some() {
            self.stir(frame + BUSY_FOR);
        }
        self.seen.clear();
        self.seen.extend_from_slice(self.now.values());
        self.looked = Some(frame);
    }

    /// A segment ends: the next begins with a look, and remembers only what tells a cut.
    pub fn rest(&mut self) {
        self.looked = None;
        self.busy.clear();
        self.scene = self.scene.map(|_| 0);
    }

    /// What `rest` leaves: levels of the last frame's blocks and how much they had moved.
    #[must_use]
    pub fn kept(&self) -> (&[u8], f32) {
        (&self.before, self.leap)
    }

    /// Goes on from `kept`.
    pub fn keep(&mut self, before: Vec<u8>, leap: f32) {
        self.rest();
        self.scene = (!before.is_empty()).then_some(0);
        (self.before, self.leap) = (before, leap);
    }

    fn is_cut(&mut self) -> bool {
        if self.before.len() != self.now.values().len() || self.before.is_empty() {
            return true;
        }
        let (mut sum, mut many) = (0_u64, 0_usize);
        for (now, before) in self.now.values().iter().zip(&self.before) {
            let moved = level(*now).abs_diff(*before);
            sum += u64::from(moved);
            many += usize::from(moved >= CUT_BLOCK);
        }
        let count = self.before.len() as f32;
        let leap = sum as f32 / count;
        let cut = leap >= CUT && many as f32 >= CUT_SHARE * count && leap > CUT_LEAP * self.leap;
        self.leap = leap;
        cut
    }

    /// Blocks that have changed keep their surroundings busy for a while.
    fn stir(&mut self, until: u64) {
        let (across, down) = (self.now.size().width as usize, self.now.size().height as usize);
        let blocks = self.now.values().iter().zip(&self.seen).zip(&self.known).enumerate();
        for (i, ((now, seen), known)) in blocks {
            if *known || now.abs_diff(*seen) <= CHANGED {
                continue;
            }
            let (x, y) = (i % across, i / across);
            for row in y.saturating_sub(AROUND)..(y + AROUND + 1).min(down) {
                let first = row * across + x.saturating_sub(AROUND);
                let last = row * across + (x + AROUND + 1).min(across);
                self.busy[first..last].fill(until);
            }
        }
    }

    fn mask(&mut self, known: impl Iterator<Item = Rect>) {
        let (size, block) = (self.now.size(), self.now.block().max(1) as f32);
        self.known.clear();
        self.known.resize(self.now.values().len(), false);
        for rect in known {
            let end = |v: f32, most: u32| (v / block).clamp(0.0, most as f32) as usize;
            let (x0, x1) = (end(rect.x0, size.width), end(rect.x1, size.width));
            for y in end(rect.y0, size.height)..end(rect.y1, size.height) {
                let row = y * size.width as usize;
                self.known[row + x0..row + x1.max(x0)].fill(true);
            }
        }
    }

    /// Whether a block changed that was quiet, whether one that was busy, whether any stirred.
    fn compare(&self, frame: u64) -> (bool, bool, bool) {
        let (mut fresh, mut busy, mut stirred, mut changed) = (false, false, false, 0);
        let blocks = self.now.values().iter().zip(&self.seen);
        for ((now, seen), (until, known)) in blocks.zip(self.busy.iter().zip(&self.known)) {
            let moved = now.abs_diff(*seen);
            stirred |= moved > STIRRED;
            changed += usize::from(moved > CHANGED);
            if moved > CHANGED && !known {
                if *until > frame { busy = true } else { fresh = true }
            }
        }
        if changed as f32 > MOVES * self.seen.len() as f32 {
            (fresh, busy) = (false, fresh || busy);
        }
        (fresh, busy, stirred)
    }
}

const fn level(sixteenths: u16) -> u8 {
    (sixteenths / Cells::ONE) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use mien_pixels::geometry::Size;
    use mien_pixels::view::Grey;

    const SIZE: Size = Size::new(640, 480);

    /// A frame of a level, with a square of another level at a place.
    fn frame(level: u8, square: Option<(u32, u32, u8)>) -> Grey {
        let mut frame = Grey::filled(SIZE, [level]);
        if let Some((x, y, level)) = square {
            for row in y..y + 48 {
                let at = x as usize;
                frame.view_mut().row_mut(row)[at..at + 48].fill(level);
            }
        }
        frame
    }

    struct Clip(Watch, u64);

    impl Clip {
        fn new() -> Self {
            Self(Watch::default(), 0)
        }

        fn next(&mut self, frame: &Grey, known: &[Rect]) -> Glance {
            self.with(frame, known, Asks::default())
        }

        fn with(&mut self, frame: &Grey, known: &[Rect], asks: Asks) -> Glance {
            let n = self.1;
            let glance = self.0.glance(n, frame.view(), known.iter().copied(), asks);
            if glance.look {
                self.0.looked(n);
            }
            self.1 += 1;
            glance
        }
    }

    #[test]
    fn a_scene_begins_with_looks_and_a_still_one_needs_hardly_any_more() {
        let (mut clip, grey) = (Clip::new(), frame(90, None));
        let looks: Vec<u64> = (0..100).filter(|_| clip.next(&grey, &[]).look).collect();
        assert_eq!(looks, [0, 1, 2, 50, 98]);
        let (mut clip, mut stood) = (Clip::new(), 0);
        (0..50).for_each(|_| stood += u32::from(clip.next(&grey, &[]).still));
        assert!(stood > 30, "{stood}");
    }

    #[test]
    fn a_change_where_no_face_is_known_is_looked_at_at_once() {
        let (mut clip, empty) = (Clip::new(), frame(90, None));
        (0..5).for_each(|_| _ = clip.next(&empty, &[]));
        let there = frame(90, Some((320, 160, 140)));
        let mut known = Clip(Watch::default(), 0);
        (0..5).for_each(|_| _ = known.next(&empty, &[]));
        assert!(clip.next(&there, &[]).look);
        let region = [Rect::new(300.0, 140.0, 400.0, 240.0)];
        let glance = known.next(&there, &region);
        assert!(!glance.look && !glance.still, "a face that moves needs no look at once");
    }

    #[test]
    fn what_keeps_changing_is_looked_at_less_often() {
        let mut clip = Clip::new();
        let swing =
            |n: u64| frame(90, Some((320, 160, if n.is_multiple_of(2) { 40 } else { 200 })));
        let looks: Vec<u64> = (0..40).filter(|n| clip.next(&swing(*n), &[]).look).collect();
        assert!(looks.len() < 16, "{looks:?}");
        assert!(looks.windows(2).all(|w| w[1] - w[0] <= CADENCE), "{looks:?}");
        // And a change somewhere else still counts at once.
        let mut other = swing(41);
        other.view_mut().row_mut(400)[..64].fill(255);
        for row in 400..432 {
            other.view_mut().row_mut(row)[..64].fill(255);
        }
        assert!(clip.next(&other, &[]).look);
    }

    #[test]
    fn doubt_and_the_last_frame_are_looked_at() {
        let (mut clip, mut stir) = (Clip::new(), 0);
        let mut next = |asks| {
            stir += 3;
            clip.with(&frame(90 + stir, None), &[], asks).look
        };
        (0..4).for_each(|_| _ = next(Asks::default()));
        assert!(!next(Asks::default()));
        assert!(next(Asks { doubt: true, last: false }));
        assert!(!next(Asks::default()));
        assert!(next(Asks { doubt: false, last: true }));
    }

    #[test]
    fn a_cut_begins_a_scene_and_a_moving_object_does_not() {
        let mut clip = Clip::new();
        let mut scenes = Vec::new();
        for n in 0..40_u32 {
            let level = if n < 20 { 60 } else { 120 };
            if clip.next(&frame(level, Some((n * 8, 100, 220))), &[]).scene {
                scenes.push(n);
            }
        }
        assert_eq!(scenes, [0, 20]);
    }

    #[test]
    fn a_live_frame_in_which_anything_moves_asks_for_a_look() {
        let (mut watch, grey) = (Watch::default(), frame(90, None));
        let stir = |watch: &mut Watch, n, frame: &Grey, known: &[Rect]| {
            watch.compare_live(n, frame.view(), known.iter().copied())
        };
        let first = stir(&mut watch, 0, &grey, &[]);
        assert!(first.scene && first.stirred && first.elsewhere);
        // Nobody has looked yet: it is asked for again.
        assert!(stir(&mut watch, 1, &grey, &[]).stirred);
        watch.ask();
        // What came while somebody looked at frame 1 is compared with frame 1.
        let there = frame(90, Some((320, 160, 120)));
        stir(&mut watch, 2, &there, &[]);
        watch.answered(1);
        let now = stir(&mut watch, 3, &there, &[]);
        assert_eq!(now, Stir { scene: false, stirred: true, elsewhere: true });
        let known = [Rect::new(310.0, 150.0, 380.0, 220.0)];
        let now = stir(&mut watch, 4, &there, &known);
        assert_eq!(now, Stir { scene: false, stirred: true, elsewhere: false });
        watch.ask();
        watch.answered(4);
        assert!(!stir(&mut watch, 5, &there, &known).stirred);
        assert!(stir(&mut watch, 4 + STILL, &there, &known).stirred, "from time to time");
    }

    #[test]
    fn a_look_from_before_a_cut_says_nothing_about_the_scene_after_it() {
        let (mut watch, dark, light) = (Watch::default(), frame(40, None), frame(220, None));
        watch.compare_live(0, dark.view(), [].into_iter());
        watch.ask();
        assert!(watch.compare_live(1, light.view(), [].into_iter()).scene);
        watch.answered(0);
        assert!(watch.compare_live(2, light.view(), [].into_iter()).stirred);
    }

    #[test]
    fn after_a_rest_the_next_frame_is_looked_at_and_a_cut_still_shows() {
        let (grey, light) = (frame(90, None), frame(180, None));
        for (then, scene) in [(&grey, false), (&light, true)] {
            let mut clip = Clip::new();
            (0..6).for_each(|_| _ = clip.next(&grey, &[]));
            clip.0.rest();
            let (before, leap) = clip.0.kept();
            let mut fresh = Watch::default();
            fresh.keep(before.to_vec(), leap);
            let glance = clip.next(then, &[]);
            assert_eq!((glance.scene, glance.look), (scene, true));
            assert_eq!(fresh.glance(6, then.view(), [].into_iter(), Asks::default()), glance);
        }
    }
}
