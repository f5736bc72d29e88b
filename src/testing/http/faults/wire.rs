//! Sends bytes with a fault on the wire: up to a byte, in small pieces, or with a flipped bit.

use std::io;
use std::time::Duration;

use super::act::{Act, Part};
use crate::clock::Clock;
use crate::worker::{StopToken, WaitEnd};

/// The fate of the connection after some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::testing) enum Flow {
    On,
    Close,
    Reset,
}

/// A part of the answer that is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::testing) enum Sent {
    Handshake,
    Head,
    Body,
}

/// A fault on the wire, with the progress of its part.
#[derive(Debug)]
pub(in crate::testing) struct WireFault {
    part: Part,
    harm: Harm,
    /// The number of bytes of the part so far.
    passed: usize,
    /// The number of lines of the body before the part begins.
    lines: usize,
}

#[derive(Debug)]
enum Harm {
    Stall(usize),
    Cut(usize),
    Reset(usize),
    Flip(usize),
    Drip(usize, Duration),
}

impl WireFault {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "each file knows its own acts"
    )]
    pub(in crate::testing) fn of(act: &Act) -> Option<Self> {
        let (part, harm) = match *act {
            Act::HangAfter(after) => (Part::Body, Harm::Stall(after)),
            Act::CutAfter(after) => (Part::Body, Harm::Cut(after)),
            Act::Drip { bytes, every } => (Part::Body, Harm::Drip(bytes.max(1), every)),
            Act::Stall { part, after } => (part, Harm::Stall(after)),
            Act::Cut { part, after } => (part, Harm::Cut(after)),
            Act::Reset { part, after } => (part, Harm::Reset(after)),
            Act::FlipBit { part, at } => (part, Harm::Flip(at)),
            Act::Dribble { part, bytes, every } => (part, Harm::Drip(bytes.max(1), every)),
            _ => return None,
        };
        let lines = match part {
            Part::Event(number) => number.saturating_sub(1),
            Part::Handshake | Part::Head | Part::Body => 0,
        };
        Some(Self {
            part,
            harm,
            passed: 0,
            lines,
        })
    }

    /// Sends bytes of a part to `out`. Waits use `clock`, and end with `stop`.
    pub(in crate::testing) fn send(
        &mut self,
        sent: Sent,
        bytes: &[u8],
        (clock, stop): (&Clock, &StopToken),
        out: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Flow> {
        let met = match self.part {
            Part::Handshake => sent == Sent::Handshake,
            Part::Head => sent == Sent::Head,
            Part::Body | Part::Event(_) => sent == Sent::Body,
        };
        if !met {
            out(bytes)?;
            return Ok(Flow::On);
        }
        let (before, bytes) = bytes.split_at(self.pass_lines(bytes));
        if !before.is_empty() {
            out(before)?;
        }
        let passed = self.passed;
        self.passed = passed.saturating_add(bytes.len());
        let (limit, end) = match self.harm {
            Harm::Stall(limit) => (limit, None),
            Harm::Cut(limit) => (limit, Some(Flow::Close)),
            Harm::Reset(limit) => (limit, Some(Flow::Reset)),
            Harm::Flip(at) => {
                let mut bytes = bytes.to_vec();
                let at = at.checked_sub(passed);
                if let Some(byte) = at.and_then(|at| bytes.get_mut(at)) {
                    *byte ^= 1;
                }
                out(&bytes)?;
                return Ok(Flow::On);
            }
            Harm::Drip(piece, every) => {
                for piece in bytes.chunks(piece) {
                    if stop.wait_until(clock, clock.after(every)) != WaitEnd::DeadlinePassed {
                        return Ok(Flow::Close);
                    }
                    out(piece)?;
                }
                return Ok(Flow::On);
            }
        };
        let left = limit.saturating_sub(passed);
        if left >= bytes.len() {
            out(bytes)?;
            return Ok(Flow::On);
        }
        out(bytes.get(..left).unwrap_or_default())?;
        Ok(end.unwrap_or_else(|| {
            stop.wait();
            Flow::Close
        }))
    }

    /// Acts in the place of a handshake that there is not, of which no byte passes.
    pub(in crate::testing) fn without_handshake(&self, stop: &StopToken) -> Flow {
        match self.harm {
            Harm::Stall(_) => {
                stop.wait();
                Flow::Close
            }
            Harm::Cut(_) => Flow::Close,
            Harm::Reset(_) => Flow::Reset,
            Harm::Flip(_) | Harm::Drip(..) => Flow::On,
        }
    }

    /// The number of these bytes before the selected line.
    fn pass_lines(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while self.lines > 0 {
            let rest = bytes.get(at..).unwrap_or_default();
            let Some(end) = memchr::memchr(b'\n', rest) else {
                return bytes.len();
            };
            at = at.saturating_add(end).saturating_add(1);
            self.lines = self.lines.saturating_sub(1);
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes sent of these pieces, and the fate of the connection.
    fn sent(act: &Act, pieces: &[(Sent, &str)]) -> (String, Flow) {
        let (clock, stop) = (Clock::system(), StopToken::never());
        let mut fault = WireFault::of(act).unwrap();
        let mut written = Vec::new();
        for (part, piece) in pieces {
            let mut out = |bytes: &[u8]| {
                written.extend_from_slice(bytes);
                Ok(())
            };
            let flow = fault.send(*part, piece.as_bytes(), (&clock, &stop), &mut out);
            if flow.as_ref().unwrap() != &Flow::On {
                return (String::from_utf8(written).unwrap(), flow.unwrap());
            }
        }
        (String::from_utf8(written).unwrap(), Flow::On)
    }

    #[test]
    fn bytes_go_out_as_far_as_the_fault_lets_them() {
        let answer = [
            (Sent::Head, "head"),
            (Sent::Body, "ab\ncd"),
            (Sent::Body, "ef\ngh\n"),
        ];
        let cut = |part, after| Act::Cut { part, after };
        let reset = |part, after| Act::Reset { part, after };
        let flip = |part, at| Act::FlipBit { part, at };
        let rows = [
            (cut(Part::Head, 2), "he", Flow::Close),
            (cut(Part::Body, 4), "headab\nc", Flow::Close),
            (cut(Part::Body, 5), "headab\ncd", Flow::Close),
            (cut(Part::Body, 11), "headab\ncdef\ngh\n", Flow::On),
            (cut(Part::Event(2), 3), "headab\ncde", Flow::Close),
            (cut(Part::Event(3), 0), "headab\ncdef\n", Flow::Close),
            (cut(Part::Handshake, 0), "headab\ncdef\ngh\n", Flow::On),
            (reset(Part::Head, 0), "", Flow::Reset),
            (reset(Part::Event(1), 1), "heada", Flow::Reset),
            (flip(Part::Head, 0), "iead", Flow::On),
            (flip(Part::Event(2), 2), "headab\ncddf\n", Flow::On),
        ];
        for (act, expected, flow) in rows {
            let (text, ended) = sent(&act, &answer);
            assert!(text.starts_with(expected), "{act:?}: {text}");
            assert_eq!(ended, flow, "{act:?}");
            assert!(flow == Flow::On || text == expected, "{act:?}: {text}");
        }
    }
}
