//! The command line.

use snakepit_proving::GridTier;

use crate::fault::MatrixFault;
use crate::place::HostPlace;

pub(crate) const USAGE: &str =
    "usage: matrix [--write] [--place NAME,…] [--tier NAME,…] [--fault NAME,…]; needs root";

/// The cells to measure, and whether to write the page.
pub(crate) struct MatrixSelection {
    pub(crate) places: Vec<HostPlace>,
    pub(crate) tiers: Vec<GridTier>,
    pub(crate) faults: Vec<MatrixFault>,
    pub(crate) write: bool,
}

impl MatrixSelection {
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let (places, tiers, faults) =
            (HostPlace::ALL.to_vec(), GridTier::ALL.to_vec(), MatrixFault::ALL.to_vec());
        let mut all = Self { places, tiers, faults, write: false };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            if word == "--write" {
                all.write = true;
                continue;
            }
            let names = words.next().ok_or_else(|| format!("{word} needs names"))?;
            match word.as_str() {
                "--place" => all.places = pick(&all.places, names, HostPlace::name)?,
                "--tier" => all.tiers = pick(&all.tiers, names, GridTier::name)?,
                "--fault" => all.faults = pick(&all.faults, names, MatrixFault::name)?,
                _ => return Err(format!("unknown option {word}")),
            }
        }
        if all.write && args.len() > 1 {
            return Err("--write takes the whole matrix".to_owned());
        }
        Ok(all)
    }
}

fn pick<T: Copy>(all: &[T], names: &str, name_of: fn(T) -> &'static str) -> Result<Vec<T>, String> {
    let one = |name: &str| {
        let found = all.iter().copied().find(|it| name_of(*it) == name);
        let known: Vec<&str> = all.iter().map(|it| name_of(*it)).collect();
        found.ok_or_else(|| format!("{name} is not one of {}", known.join(", ")))
    };
    names.split(',').map(one).collect()
}
