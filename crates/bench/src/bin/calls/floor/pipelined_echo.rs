//! The floor of throughput: windows of MessagePack frames to a Python loop with msgspec, without a scheduler.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::Instant;

use snakepit_bench::BenchResult;

use crate::child::PythonChild;
use crate::python::BenchPython;
use crate::turns::{Availability, CallPace, CallTimes, EchoCaller};

const PREFIX: usize = 4;

/// Workers, each with its own connection and thread.
pub(crate) struct MsgspecEcho {
    lanes: Vec<PipelinedConnection>,
    children: Vec<PythonChild>,
}

/// One socket, and the buffers that all its windows use.
struct PipelinedConnection {
    stream: UnixStream,
    out: Vec<u8>,
    room: Vec<u8>,
}

impl MsgspecEcho {
    pub(crate) fn start(python: &BenchPython, workers: usize) -> BenchResult<Availability<Self>> {
        if let Err(why) = python.has("msgspec") {
            return Ok(Availability::Absent(why));
        }
        let mut echo = Self { lanes: Vec::new(), children: Vec::new() };
        for _ in 0..workers {
            let script = BenchPython::script("msgspec_echo.py");
            let (child, stream) = PythonChild::with_socket(Command::new(python.path()).arg(script).arg("0"))?;
            echo.lanes.push(PipelinedConnection { stream, out: Vec::new(), room: vec![0; 1 << 18] });
            echo.children.push(child);
        }
        Ok(Availability::Available(echo))
    }

    /// Reads a stream of `items` numbers from the first worker.
    pub(crate) fn stream(&mut self, items: usize) -> BenchResult<()> {
        let lane = &mut self.lanes[0];
        lane.out.clear();
        let at = begin_frame(&mut lane.out);
        lane.out.extend(b"\x92\xa5count\x81\xa1n\xce");
        lane.out.extend((items as u32).to_be_bytes());
        end_frame(&mut lane.out, at);
        lane.stream.write_all(&lane.out)?;
        lane.read_frames(items, |_| ())?;
        Ok(())
    }
}

impl EchoCaller for MsgspecEcho {
    fn one(&mut self, bytes: usize, calls: usize) -> BenchResult<CallTimes> {
        let began = Instant::now();
        let times = self.lanes[0].windows(bytes, calls, 1)?;
        Ok(CallTimes::new(began.elapsed(), times))
    }

    fn many(&mut self, bytes: usize, calls: usize, in_flight: usize) -> BenchResult<CallTimes> {
        let share = calls / self.lanes.len();
        let began = Instant::now();
        let times = thread::scope(|scope| {
            let threads: Vec<_> = self
                .lanes
                .iter_mut()
                .map(|lane| scope.spawn(move || lane.windows(bytes, share, in_flight)))
                .collect();
            let mut times = Vec::with_capacity(calls);
            for thread in threads {
                times.extend(thread.join().expect("a lane")?);
            }
            Ok::<_, io::Error>(times)
        })?;
        Ok(CallTimes::new(began.elapsed(), times))
    }

    fn pace(&self) -> CallPace {
        CallPace::Fast
    }
}

impl PipelinedConnection {
    /// Writes a window of calls, reads all its answers, and repeats. Returns the time of each call since the start of
    /// its window. A window must fit into the socket's buffer, because the answers are not read while it is written.
    fn windows(&mut self, bytes: usize, calls: usize, window: usize) -> io::Result<Vec<f64>> {
        let data = vec![0x5a; bytes];
        let mut times = Vec::with_capacity(calls);
        while times.len() < calls {
            let size = window.min(calls - times.len());
            let began = Instant::now();
            self.out.clear();
            for _ in 0..size {
                encode_call(&mut self.out, &data);
            }
            self.stream.write_all(&self.out)?;
            self.read_frames(size, |answers| {
                let took = began.elapsed().as_secs_f64();
                times.extend((0..answers).map(|_| took));
            })?;
        }
        Ok(times)
    }

    /// Reads exactly `frames` frames. After each read, reports how many are complete.
    fn read_frames(&mut self, frames: usize, mut complete: impl FnMut(usize)) -> io::Result<()> {
        let (mut left, mut have) = (frames, 0);
        while left > 0 {
            let got = self.stream.read(&mut self.room[have..])?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            have += got;
            let (mut done, mut seen) = (0, 0);
            while have - done >= PREFIX {
                let length =
                    u32::from_le_bytes(self.room[done..done + PREFIX].try_into().expect("four bytes"));
                let end = done + PREFIX + length as usize;
                if end > have {
                    self.room.resize(self.room.len().max(end - done), 0);
                    break;
                }
                (done, seen) = (end, seen + 1);
            }
            self.room.copy_within(done..have, 0);
            have -= done;
            left -= seen;
            complete(seen);
        }
        Ok(())
    }
}

/// Encodes `["echo", {"data": data}]`.
fn encode_call(out: &mut Vec<u8>, data: &[u8]) {
    let at = begin_frame(out);
    out.extend(b"\x92\xa4echo\x81\xa4data\xc6");
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
    end_frame(out, at);
}

fn begin_frame(out: &mut Vec<u8>) -> usize {
    out.extend([0; PREFIX]);
    out.len()
}

fn end_frame(out: &mut [u8], begin: usize) {
    let length = (out.len() - begin) as u32;
    out[begin - PREFIX..begin].copy_from_slice(&length.to_le_bytes());
}
