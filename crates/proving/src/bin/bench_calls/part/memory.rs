//! What a worker weighs, beside a bare interpreter and beside the workers of others.

use snakepit_proving::bench::machine::Weight;
use snakepit_proving::bench::{Beside, Outcome, Report, Row, Samples, Side, Target, Unit};

use crate::Bench;
use crate::floor::bare::{Bare, Interpreters};
use crate::ours::{self, Codec, Over, Shape};
use crate::peer::grpc::{self, Server, Servers};
use crate::peer::pools::Host;
use crate::turns::Start;

/// As many of each kind, all there at once: then pages are shared alike.
const WORKERS: usize = 4;

/// What ours may weigh beyond a bare interpreter, in MiB.
const MORE: f64 = 4.0;

/// Which of the weights.
type Pick = fn(&Weight) -> f64;

pub(crate) fn measure(bench: &Bench, report: &mut Report) -> Outcome<()> {
    let python = &bench.python;
    let mut ours = ours::start(python, Shape { workers: WORKERS, codec: Codec::Auto, over: Over::Socket })?;
    let mut with_msgspec =
        ours::start(python, Shape { workers: WORKERS, codec: Codec::Msgspec, over: Over::Socket })?;
    for pit in [&mut ours, &mut with_msgspec] {
        if let Start::Here(pit) = pit {
            pit.many(64, 64, WORKERS)?;
        }
    }
    let (bare, _) = Interpreters::start(python, Bare::Barest, WORKERS)?;
    let executor = Host::start(python, "executor", WORKERS)?;
    let pool = Host::start(python, "pool", WORKERS)?;
    let grpc = match grpc::installed(python) {
        Ok(()) => Start::Here(Servers::start(python, Server::Sync, WORKERS)?.0),
        Err(why) => Start::Absent(why),
    };

    let weigh = |pids: &[i32]| pids.iter().map(Weight::of).collect::<Outcome<Vec<Weight>>>();
    let ours = each(ours, |it| weigh(&it.worker_pids()?))?;
    let with_msgspec = each(with_msgspec, |it| weigh(&it.worker_pids()?))?;
    let grpc = each(grpc, |it| weigh(&it.pids()))?;
    let bare = Start::Here(weigh(&bare.pids())?);
    let executor = Start::Here(weigh(executor.worker_pids())?);
    let pool = Start::Here(weigh(pool.worker_pids())?);

    let kinds: [(&str, Pick); 2] = [("Pss", |it| it.pss), ("private memory", |it| it.private)];
    for (kind, pick) in kinds {
        let mut add = |what: &str, ours: &Start<Vec<Weight>>, name: &str, theirs, target| {
            report.add(Row {
                what: format!("{kind} of a worker{what}"),
                unit: Unit::Mebibytes,
                ours: side(ours, pick),
                beside: Some(Beside { name: name.to_owned(), side: side(theirs, pick) }),
                target,
            });
        };
        add("", &ours, "bare python3, blocked in a read", &bare, Target::AboveAtMost(MORE));
        // Imported once it pays: that the worker's own imports weigh, ours or not, is not the SDK's doing.
        add(
            " that has imported msgspec",
            &with_msgspec,
            "bare python3, blocked in a read",
            &bare,
            Target::None,
        );
        add("", &ours, "grpcio sync server", &grpc, Target::None);
        add("", &ours, "mp.Pool worker, forked", &pool, Target::None);
        add("", &ours, "ProcessPoolExecutor worker, forked", &executor, Target::None);
    }
    Ok(())
}

fn each<T>(start: Start<T>, weigh: impl FnOnce(&T) -> Outcome<Vec<Weight>>) -> Outcome<Start<Vec<Weight>>> {
    Ok(match start {
        Start::Here(it) => Start::Here(weigh(&it)?),
        Start::Absent(why) => Start::Absent(why),
    })
}

fn side(weights: &Start<Vec<Weight>>, pick: Pick) -> Side {
    match weights {
        Start::Here(weights) => weights.iter().map(pick).collect::<Samples>().into(),
        Start::Absent(why) => Side::Absent(why.clone()),
    }
}
