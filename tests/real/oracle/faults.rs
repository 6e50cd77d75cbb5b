//! Faults and failures of a schedule that are the same whether client-go reads from an apiserver or from the hub.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::sleep;

use super::clientgo::ClientGo;
use super::history::{Log, State, Subject};
use super::schedule::{Disruption, Step};
use super::writer::Writer;
use crate::proxy::{Fault, FaultProxy};

/// Number of problems shown in a failure.
const SHOWN: usize = 4;

/// Returns the proxy fault of a disruption, if it has one.
pub(super) fn fault(disruption: Disruption) -> Option<Fault> {
    match disruption {
        Disruption::Slow => Some(Fault::Slow),
        Disruption::Stall { .. } => Some(Fault::Stall),
        Disruption::Refuse => Some(Fault::Refuse),
        _ => None,
    }
}

/// Makes the changes of a step under its fault, and repairs it. The fault is at the proxy or in client-go.
///
/// # Panics
/// If the fault is one of the server that client-go reads from.
pub(super) async fn change_under(step: Step, proxy: &FaultProxy, go: &ClientGo, writer: &mut Writer) {
    if let Some(fault) = fault(step.disruption) {
        return change_behind(fault, step, proxy, writer).await;
    }
    match step.disruption {
        Disruption::None => writer.change(step.changes).await,
        Disruption::Reset { times } => {
            let pause = step.lasts / times;
            let resets = async {
                for _ in 0..times {
                    sleep(pause).await;
                    proxy.reset_all().await;
                }
            };
            tokio::join!(resets, change(writer, step));
        }
        Disruption::Uninstall => {
            change(writer, step).await;
            writer.reinstall().await;
        }
        Disruption::Sleep { reset } => {
            go.freeze(true);
            tokio::join!(sleep(step.lasts), change(writer, step));
            if reset {
                proxy.reset_all().await;
            }
            go.freeze(false);
        }
        other => unreachable!("a fault of the server: {other:?}"),
    }
}

async fn change_behind(fault: Fault, step: Step, proxy: &FaultProxy, writer: &mut Writer) {
    proxy.set(fault).await;
    if step.disruption == (Disruption::Stall { reset: true }) {
        proxy.reset_all().await;
    }
    tokio::join!(sleep(step.lasts), change(writer, step));
    proxy.set(Fault::Pass).await;
}

/// Makes the changes of a step.
pub(super) async fn change(writer: &mut Writer, step: Step) {
    writer.change(step.changes).await;
    writer.bulk(step.bulk).await;
}

/// Returns the objects whose state each log knows wrongly.
pub(super) fn wrong_objects<'l>(
    logs: impl Iterator<Item = &'l Log>,
    expected: &BTreeMap<Subject, State>,
) -> Vec<BTreeSet<String>> {
    let wrong = |log: &Log| {
        let known = log.known();
        let all = known.keys().chain(expected.keys());
        let wrong = all.filter(|subject| known.get(subject) != expected.get(subject));
        wrong.map(|subject| format!("{subject:?}")).collect()
    };
    logs.map(wrong).collect()
}

/// Fails with the first problems of a schedule, if it has any.
pub(super) fn fail_on(problems: &[String], oracle: &str, schedule: &impl std::fmt::Debug) {
    if !problems.is_empty() {
        let (count, shown) = (problems.len(), problems[..problems.len().min(SHOWN)].join("\n\n"));
        panic!("{oracle}: {count} problems with {schedule:?}, the first:\n{shown}");
    }
}
