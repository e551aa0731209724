//! Whether a worker died of its device, and which fault it was.
//!
//! The evidence is the exit and the last lines that the worker printed. A false alarm costs a device for a minute. So a
//! line counts only if a library reports an error in it, not if it only mentions the library. Broken memory counts only
//! if the process was aborted.

use std::fmt;

use rustix::process::Signal;

use snakepit_custody::ExitStatus;

/// The most characters that are kept of a line.
const KEPT_CHARS: usize = 200;

/// The kind of fault that a worker died of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FaultKind {
    /// The GPU, or the libraries that drive it.
    Gpu,
    /// The allocator found that memory was corrupted.
    Allocator,
    /// A bus error (SIGBUS): the worker touched memory that is not there, because of a truncated file, a failing disk
    /// or a failing memory chip.
    Bus,
    /// A pattern of the pool's own.
    Pattern,
}

/// A fault of the device or machine that a worker ran on.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Fault {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The line that reported the fault, if there is one.
    pub line: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            FaultKind::Gpu => "a GPU fault",
            FaultKind::Allocator => "corrupted memory",
            FaultKind::Bus => "a bus error",
            FaultKind::Pattern => "a known fault",
        })?;
        match &self.line {
            Some(line) => write!(f, ": {line}"),
            None => Ok(()),
        }
    }
}

/// The texts that GPU libraries print for an error, anywhere in a line.
const GPU_ERRORS: [&str; 25] = [
    "CUDA out of memory",
    "CUDA failure",
    "Cuda failure",
    "CUDA_ERROR_",
    "cudaError",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_INTERNAL_ERROR",
    "CUBLAS_STATUS_NOT_INITIALIZED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR",
    "CUDNN_STATUS_NOT_INITIALIZED",
    "Xid (",
    "NCCL failure",
    "ncclInternalError",
    "ncclSystemError",
    "ncclUnhandledCudaError",
    "HIP out of memory",
    "HIP failure",
    "hipError",
    "HSA_STATUS_ERROR",
    "HW Exception by GPU",
    "GPU core dump failed",
    "Memory access fault by GPU",
];

/// Texts that are an error only if the line goes on like one: `CUDA error: …` and `CUDA error 700 at …`, but not
/// `CUDA error handling is on`.
const GPU_WORDS: [&str; 4] = ["CUDA error", "NCCL error", "HIP error", "ROCm error"];

/// The beginnings of the line that glibc prints before it aborts. The program's name may precede them.
const GLIBC_LINES: [&str; 11] = [
    "malloc(): ",
    "calloc(): ",
    "realloc(): ",
    "free(): ",
    "munmap_chunk(): ",
    "mremap_chunk(): ",
    "malloc_consolidate(): ",
    "tcache_thread_shutdown(): ",
    "double free or corruption",
    "corrupted size vs. prev_size",
    "corrupted double-linked list",
];

/// The texts that older versions and other allocators print somewhere in that line.
const ALLOCATOR_ERRORS: [&str; 4] =
    ["*** Error in `", "<jemalloc>: ", "malloc: *** error for object", "Attempt to free invalid pointer"];

/// How a worker ended.
#[derive(Clone, Copy, Debug)]
pub struct WorkerExit<'a> {
    /// How the process ended, if that was seen.
    pub status: Option<ExitStatus>,
    /// Whether the pool ended the worker. If so, its signal says nothing.
    pub by_pool: bool,
    /// The last lines that the worker printed.
    pub output: &'a [String],
}

/// Returns the fault that a worker died of, if any. `patterns` are the pool's own texts.
pub fn fault_of(exit: &WorkerExit<'_>, patterns: &[String]) -> Option<Fault> {
    if exit.status == Some(ExitStatus::Code(0)) {
        return None;
    }
    let said = |kind, is: &dyn Fn(&str) -> bool| {
        // The last such line is the closest to the death.
        let line = exit.output.iter().rev().find(|line| is(line))?;
        Some(Fault { kind, line: Some(line.trim().chars().take(KEPT_CHARS).collect()) })
    };
    let died_of = |signal: Signal| !exit.by_pool && exit.status == Some(ExitStatus::Signal(signal.as_raw()));
    let own = |line: &str| patterns.iter().any(|it| !it.is_empty() && line.contains(it.as_str()));
    said(FaultKind::Pattern, &own)
        .or_else(|| said(FaultKind::Gpu, &is_gpu_error))
        .or_else(|| {
            let aborted = died_of(Signal::ABORT);
            aborted.then(|| said(FaultKind::Allocator, &is_allocator_error)).flatten()
        })
        .or_else(|| died_of(Signal::BUS).then_some(Fault { kind: FaultKind::Bus, line: None }))
}

fn is_gpu_error(line: &str) -> bool {
    GPU_ERRORS.iter().any(|text| words(line, text).next().is_some())
        || GPU_WORDS.iter().any(|text| words(line, text).any(goes_on_like_an_error))
}

/// Returns what follows each `text` in the line that is not the end of a longer word.
fn words<'a>(line: &'a str, text: &'a str) -> impl Iterator<Item = &'a str> {
    line.match_indices(text).filter_map(move |(at, _)| {
        let before = line[..at].chars().next_back();
        let starts = before.is_none_or(|c| !c.is_alphanumeric() && c != '_');
        starts.then(|| &line[at + text.len()..])
    })
}

fn goes_on_like_an_error(rest: &str) -> bool {
    let next = rest.trim_start();
    next.starts_with(|c: char| c.is_ascii_digit() || matches!(c, ':' | '(' | '=' | '[' | '\''))
        || ["at ", "in ", "in: ", "code "].iter().any(|word| next.starts_with(word))
}

fn is_allocator_error(line: &str) -> bool {
    let line = line.trim_start();
    let unnamed = line.split_once(": ").filter(|(name, _)| !name.contains(' ')).map(|(_, rest)| rest);
    let gave_up = |line: &str| GLIBC_LINES.iter().any(|text| line.starts_with(text));
    gave_up(line) || unnamed.is_some_and(gave_up) || ALLOCATOR_ERRORS.iter().any(|text| line.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Died {
        status: ExitStatus,
        by_pool: bool,
        output: Vec<String>,
    }

    impl Died {
        fn fault(&self, patterns: &[String]) -> Option<Fault> {
            let exit = WorkerExit { status: Some(self.status), by_pool: self.by_pool, output: &self.output };
            fault_of(&exit, patterns)
        }
    }

    fn died(status: ExitStatus, output: &[&str]) -> Died {
        let output = output.iter().map(|&line| line.to_owned()).collect();
        Died { status, by_pool: false, output }
    }

    fn died_of(signal: Signal, output: &[&str]) -> Died {
        died(ExitStatus::Signal(signal.as_raw()), output)
    }

    fn kind(died: &Died) -> Option<FaultKind> {
        died.fault(&[]).map(|fault| fault.kind)
    }

    #[test]
    fn gpu_errors_are_recognized_however_the_worker_ended() {
        let lines = [
            "RuntimeError: CUDA error: device-side assert triggered",
            "CUDA error 700 at kernels.cu:12: an illegal memory access was encountered",
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total)",
            "terminate called after throwing an instance of 'thrust::system_error': cudaErrorIllegalAddress",
            "pycuda._driver.LogicError: cuCtxSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS",
            "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
            "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.",
            "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:219",
            "node1:12:34 [0] NCCL WARN Cuda failure 'out of memory'",
            "RuntimeError: HIP error: invalid device function",
            "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB",
            "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!",
            "Memory access fault by GPU node-1 (Agent handle: 0x55d) on address 0x7f. Reason: Page not present.",
        ];
        for line in lines {
            let output = ["Traceback (most recent call last):", line, "  and more"];
            let exits = [ExitStatus::Code(1), ExitStatus::Signal(Signal::ABORT.as_raw()), ExitStatus::Lost];
            for exit in exits {
                let fault = died(exit, &output).fault(&[]).unwrap_or_else(|| panic!("{line}"));
                assert_eq!((fault.kind, fault.line.as_deref()), (FaultKind::Gpu, Some(line)));
            }
        }
    }

    #[test]
    fn a_line_that_merely_mentions_a_gpu_is_not_a_fault() {
        let lines = [
            "CUDA error handling is enabled",
            "CUDA errors so far: none",
            "using CUDA 12.4, NCCL version 2.18.1, ROCm 5.6 (HIP 5.6.31061)",
            "checking for a CUDA error ...",
            "maxid (7) is larger than minid",
            "CHIP error: no such part",
            "MYCUDA_ERROR_COUNT=0",
            "CUDNN_STATUS_SUCCESS",
            "set_cudaErrorHandler()",
            "MemoryError",
            "Killed: out of memory",
        ];
        for line in lines {
            assert_eq!(kind(&died(ExitStatus::Code(1), &[line])), None, "{line}");
        }
    }

    #[test]
    fn an_allocator_that_gave_up_is_recognized() {
        let lines = [
            "malloc(): corrupted top size",
            "malloc(): unaligned tcache chunk detected",
            "free(): invalid pointer",
            "free(): double free detected in tcache 2",
            "double free or corruption (fasttop)",
            "corrupted size vs. prev_size while consolidating",
            "munmap_chunk(): invalid pointer",
            "realloc(): invalid next size",
            "python3: malloc(): invalid size (unsorted)",
            "*** Error in `python3': free(): invalid pointer: 0x00007f ***",
            "src/tcmalloc.cc:332] Attempt to free invalid pointer 0x7f",
            "<jemalloc>: size mismatch detected (true size 64 vs input size 32), likely caused by application bug",
        ];
        for line in lines {
            let output = [line, "Fatal Python error: Aborted", "  File \"worker.py\", line 3 in crash"];
            assert_eq!(kind(&died_of(Signal::ABORT, &output)), Some(FaultKind::Allocator), "{line}");
            assert_eq!(kind(&died_of(Signal::SEGV, &output)), None, "{line}: not aborted");
            assert_eq!(kind(&died(ExitStatus::Code(1), &output)), None, "{line}: not aborted");
        }
    }

    #[test]
    fn an_abort_without_an_allocator_message_is_not_a_fault() {
        let lines = [
            "Fatal Python error: Aborted",
            "terminate called after throwing an instance of 'std::runtime_error'",
            "worker.py: assertion failed: x > 0",
            "log: we call free(): it is safe",
            "see malloc() for the details",
        ];
        for line in lines {
            assert_eq!(kind(&died_of(Signal::ABORT, &[line])), None, "{line}");
        }
    }

    #[test]
    fn sigbus_is_a_fault_and_other_signals_are_not() {
        assert_eq!(kind(&died_of(Signal::BUS, &[])), Some(FaultKind::Bus));
        assert_eq!(kind(&died_of(Signal::SEGV, &[])), None);
        assert_eq!(kind(&died_of(Signal::KILL, &["Killed"])), None);
    }

    #[test]
    fn a_signal_sent_by_the_pool_is_not_a_fault() {
        for signal in [Signal::BUS, Signal::ABORT] {
            let ended = Died { by_pool: true, ..died_of(signal, &["free(): invalid pointer"]) };
            assert_eq!(kind(&ended), None);
        }
    }

    #[test]
    fn a_clean_exit_is_not_a_fault() {
        assert_eq!(kind(&died(ExitStatus::Code(0), &["CUDA out of memory, using the CPU"])), None);
    }

    #[test]
    fn a_pool_has_patterns_of_its_own() {
        let wedged = died(ExitStatus::Code(3), &["TPU driver is wedged (0x17)"]);
        assert_eq!(kind(&wedged), None);
        let fault = wedged.fault(&[String::new(), "driver is wedged".into()]).expect("a fault");
        assert_eq!(fault.to_string(), "a known fault: TPU driver is wedged (0x17)");
        assert_eq!(died(ExitStatus::Code(3), &["anything"]).fault(&[String::new()]), None);
    }

    #[test]
    fn a_long_line_is_not_kept_whole() {
        let line = format!("CUDA error: {}", "é".repeat(5000));
        let fault = died(ExitStatus::Code(1), &[&line]).fault(&[]).expect("a fault");
        assert_eq!(fault.line.expect("a line").chars().count(), KEPT_CHARS);
    }
}
