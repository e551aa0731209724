//! The matrix of custody: every tier in every place under every fault, with real processes.
//!
//! `matrix` prints a line for each cell and ends with 1 if one differs from what [`expected`] states. `matrix --write`
//! also writes the table to `docs/custody-matrix.md`. `--place`, `--tier` and `--fault` select cells by names that are
//! separated by commas. The program needs root.
//!
//! Two processes do the work. One measures, in its own directory. The other waits for its end and proves that nothing
//! is left of it ([`leftovers`]). `matrix enter PLACE COMMAND…` becomes a process of a place and runs the command.

mod cell;
mod enter;
mod expected;
mod fault;
mod leftovers;
mod page;
mod place;
mod selection;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cell::{CellOutcome, MatrixRow};
use selection::MatrixSelection;
use snakepit_proving::Programs;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("enter") => return enter::run(&args[1..]),
        Some("measure") => {}
        _ if !snakepit_proving::is_root() => {
            snakepit_proving::unproven("the matrix of custody: only root can create all of its places");
            return ExitCode::SUCCESS;
        }
        _ => return leftovers::run(&args),
    }
    match MatrixSelection::parse(&args[1..]) {
        Ok(selection) => measure(&selection),
        Err(words) => {
            eprintln!("matrix: {words}\n{}", selection::USAGE);
            ExitCode::from(2)
        }
    }
}

fn measure(selection: &MatrixSelection) -> ExitCode {
    cell::catch_quietly();
    let programs = Programs { host: beside_us("proving-host"), hostile: beside_us("proving-hostile") };
    let mut rows = Vec::new();
    for &place in &selection.places {
        for &tier in &selection.tiers {
            let cells = selection.faults.iter().map(|&fault| {
                let outcome = cell::run(&programs, place, tier, fault);
                let mark =
                    if expected::differs(place, tier, fault, &outcome).is_some() { "  DIFFERS" } else { "" };
                println!("{:24} {:9} {:18} {outcome}{mark}", place.name(), tier.name(), fault.name());
                (fault, outcome)
            });
            rows.push(MatrixRow { place, tier, cells: cells.collect() });
        }
    }
    if selection.write {
        page::write(&rows);
    }
    let differing: Vec<String> = rows.iter().flat_map(MatrixRow::differing).collect();
    let unproven =
        rows.iter().flat_map(|row| &row.cells).filter(|(_, it)| matches!(it, CellOutcome::Unproven(_)));
    println!(
        "{} cells, {} of them not proven here, {} differ from what is promised",
        rows.iter().map(|row| row.cells.len()).sum::<usize>(),
        unproven.count(),
        differing.len(),
    );
    for line in &differing {
        println!("DIFFERS: {line}");
    }
    if differing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the path of a program that is built together with this one.
fn beside_us(name: &str) -> PathBuf {
    let me = std::env::current_exe().expect("a program has a path");
    let path = me.parent().unwrap_or(Path::new("/")).join(name);
    assert!(path.exists(), "{} is not built: cargo build -p snakepit-proving", path.display());
    path
}
