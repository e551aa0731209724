//! The memory of a worker, beside a bare interpreter and the workers of peers.

use snakepit_bench::{
    BenchReport, BenchResult, Comparand, ProcessMemory, ReportRow, RowTarget, SampleSet, Side, Unit,
};

use crate::CallBench;
use crate::engine::{self, CallTransport, Codec, PoolShape};
use crate::floor::interpreter::{BareInterpreters, InterpreterKind};
use crate::peer::grpc::{self, GrpcServerKind, GrpcServers};
use crate::peer::pools::PythonPoolHost;
use crate::turns::Availability;

/// The same number of each kind is alive at the same time, so all share pages alike.
const WORKERS: usize = 4;

/// How much more memory than a bare interpreter our worker may take, in MiB.
const MORE: f64 = 4.0;

/// Selects one of the numbers.
type MemoryField = fn(&ProcessMemory) -> f64;

pub(crate) fn measure(bench: &CallBench, report: &mut BenchReport) -> BenchResult<()> {
    let python = &bench.python;
    let mut ours = engine::start(
        python,
        PoolShape { workers: WORKERS, codec: Codec::Auto, over: CallTransport::Socket },
    )?;
    let mut with_msgspec = engine::start(
        python,
        PoolShape { workers: WORKERS, codec: Codec::Msgspec, over: CallTransport::Socket },
    )?;
    for pit in [&mut ours, &mut with_msgspec] {
        if let Availability::Available(pit) = pit {
            pit.many(64, 64, WORKERS)?;
        }
    }
    let (interpreter, _) = BareInterpreters::start(python, InterpreterKind::Barest, WORKERS)?;
    let executor = PythonPoolHost::start(python, "executor", WORKERS)?;
    let pool = PythonPoolHost::start(python, "pool", WORKERS)?;
    let grpc = match grpc::installed(python) {
        Ok(()) => Availability::Available(GrpcServers::start(python, GrpcServerKind::Sync, WORKERS)?.0),
        Err(why) => Availability::Absent(why),
    };

    let weigh =
        |pids: &[i32]| pids.iter().map(ProcessMemory::of).collect::<BenchResult<Vec<ProcessMemory>>>();
    let ours = each(ours, |it| weigh(&it.worker_pids()?))?;
    let with_msgspec = each(with_msgspec, |it| weigh(&it.worker_pids()?))?;
    let grpc = each(grpc, |it| weigh(&it.pids()))?;
    let interpreter = Availability::Available(weigh(&interpreter.pids())?);
    let executor = Availability::Available(weigh(executor.worker_pids())?);
    let pool = Availability::Available(weigh(pool.worker_pids())?);

    let kinds: [(&str, MemoryField); 2] = [("Pss", |it| it.pss), ("private memory", |it| it.private)];
    for (kind, pick) in kinds {
        let mut add = |what: &str, ours: &Availability<Vec<ProcessMemory>>, name: &str, theirs, target| {
            report.add(ReportRow {
                what: format!("{kind} of a worker{what}"),
                unit: Unit::Mebibytes,
                ours: side(ours, pick),
                beside: Some(Comparand { name: name.to_owned(), side: side(theirs, pick) }),
                target,
            });
        };
        add("", &ours, "bare python3, blocked in a read", &interpreter, RowTarget::AboveAtMost(MORE));
        // The SDK imports msgspec only once that pays off, so the memory with msgspec is reported but has no target.
        add(
            " that has imported msgspec",
            &with_msgspec,
            "bare python3, blocked in a read",
            &interpreter,
            RowTarget::None,
        );
        add("", &ours, "grpcio sync server", &grpc, RowTarget::None);
        add("", &ours, "mp.Pool worker, forked", &pool, RowTarget::None);
        add("", &ours, "ProcessPoolExecutor worker, forked", &executor, RowTarget::None);
    }
    Ok(())
}

fn each<T>(
    start: Availability<T>,
    weigh: impl FnOnce(&T) -> BenchResult<Vec<ProcessMemory>>,
) -> BenchResult<Availability<Vec<ProcessMemory>>> {
    Ok(match start {
        Availability::Available(it) => Availability::Available(weigh(&it)?),
        Availability::Absent(why) => Availability::Absent(why),
    })
}

fn side(weights: &Availability<Vec<ProcessMemory>>, pick: MemoryField) -> Side {
    match weights {
        Availability::Available(weights) => weights.iter().map(pick).collect::<SampleSet>().into(),
        Availability::Absent(why) => Side::Absent(why.clone()),
    }
}
