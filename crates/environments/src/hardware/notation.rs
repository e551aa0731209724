//! The notation of GPUs and threads in a file.

use std::num::NonZeroUsize;

use serde::{Deserialize, Serialize};

use super::{Gpus, Threads};
use snakepit_settings::Notation;

/// A word, or a list of device names.
#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "expected \"one-per-worker\", \"all\", or a list such as [0, 1]")]
pub enum GpuChoice {
    /// `"one-per-worker"` or `"all"`.
    Word(GpuWord),
    /// The names of devices.
    List(Vec<GpuName>),
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuWord {
    OnePerWorker,
    All,
}

#[derive(Deserialize, Serialize)]
#[serde(untagged)]
pub enum GpuName {
    Number(u32),
    Name(String),
}

impl Notation<Gpus> for GpuChoice {
    fn value(self) -> Gpus {
        let name = |name| match name {
            GpuName::Number(number) => number.to_string(),
            GpuName::Name(name) => name,
        };
        match self {
            Self::Word(GpuWord::OnePerWorker) => Gpus::OnePerWorker,
            Self::Word(GpuWord::All) => Gpus::All,
            Self::List(list) => Gpus::These(list.into_iter().map(name).collect()),
        }
    }

    fn written(gpus: &Gpus) -> Self {
        match gpus {
            Gpus::OnePerWorker => Self::Word(GpuWord::OnePerWorker),
            Gpus::All => Self::Word(GpuWord::All),
            Gpus::These(names) => Self::List(names.iter().cloned().map(GpuName::Name).collect()),
        }
    }
}

/// A word or a number.
#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "expected \"auto\", \"off\", or a number of threads")]
pub enum ThreadCount {
    /// `"auto"` or `"off"`.
    Word(ThreadWord),
    /// A number of threads.
    Number(NonZeroUsize),
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadWord {
    Auto,
    Off,
}

impl Notation<Threads> for ThreadCount {
    fn value(self) -> Threads {
        match self {
            Self::Word(ThreadWord::Auto) => Threads::Shared,
            Self::Word(ThreadWord::Off) => Threads::Unlimited,
            Self::Number(number) => Threads::Each(number.get()),
        }
    }

    fn written(threads: &Threads) -> Self {
        match threads {
            Threads::Shared => Self::Word(ThreadWord::Auto),
            Threads::Unlimited => Self::Word(ThreadWord::Off),
            Threads::Each(number) => Self::Number(Notation::written(number)),
        }
    }
}
