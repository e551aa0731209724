//! A host as a user would write one, for the tests to break: it opens a run, spawns workers, and leaves by
//! every door there is. `host HOSTILE TAG`, then orders in lines on standard input (see `orders`).

mod churn;
mod orders;
mod race;
mod spawn;
mod storm;
mod ways_out;

use std::io::{BufRead, Write};

use orders::{Answer, Next, Orders};
use spawn::Kit;

fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(hostile), Some(tag)) = (args.next(), args.next()) else { panic!("host HOSTILE TAG") };
    serve(Orders::new(Kit { hostile, tag }));
}

/// Takes orders until one says otherwise or nobody gives any more.
fn serve(mut orders: Orders) {
    loop {
        let mut line = String::new();
        let heard = std::io::stdin().lock().read_line(&mut line);
        if !heard.is_ok_and(|count| count > 0) {
            return;
        }
        let Answer { line, next } = orders.obey(line.trim_end());
        if let Some(line) = line {
            let mut out = std::io::stdout().lock();
            // A test that has stopped listening is about to kill us.
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
        match next {
            Next::Obey => {}
            Next::Return => return,
            Next::MoveToAThread => {
                std::thread::spawn(move || {
                    serve(orders);
                    std::process::exit(0);
                });
                ways_out::end_this_thread();
            }
        }
    }
}
