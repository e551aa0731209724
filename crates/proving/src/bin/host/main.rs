//! A host as a user would write it, for the tests to break: it opens a run, spawns workers, and exits in every possible
//! way. Usage: `host HOSTILE TAG`, then orders in lines on standard input (see `orders`).

mod churn;
mod exits;
mod orders;
mod race;
mod spawn;
mod storm;

use std::io::{BufRead, Write};

use orders::{AfterOrder, HostState, OrderAnswer};
use spawn::HostileProgram;

fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(hostile), Some(tag)) = (args.next(), args.next()) else { panic!("host HOSTILE TAG") };
    serve(HostState::new(HostileProgram { hostile, tag }));
}

/// Carries out orders until one ends the host or the input ends.
fn serve(mut orders: HostState) {
    loop {
        let mut line = String::new();
        let heard = std::io::stdin().lock().read_line(&mut line);
        if !heard.is_ok_and(|count| count > 0) {
            return;
        }
        let OrderAnswer { line, next } = orders.obey(line.trim_end());
        if let Some(line) = line {
            let mut out = std::io::stdout().lock();
            // A test that has stopped listening is about to kill this process.
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
        match next {
            AfterOrder::Obey => {}
            AfterOrder::Return => return,
            AfterOrder::MoveToAThread => {
                std::thread::spawn(move || {
                    serve(orders);
                    std::process::exit(0);
                });
                exits::end_this_thread();
            }
        }
    }
}
