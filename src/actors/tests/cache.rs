use actix::{Arbiter, System};
use tokio::runtime::Runtime;

use crate::actors::messages::{Apply, Ask, OpenPartition};
use crate::actors::{Env, Tuning};
use crate::cache::testing::{delta, object_with, origin, pods};
use crate::cache::{DeltaFifo, Query, QueryError};
use crate::types::{Change, DeltaKind, InformerHealth, View};

#[test]
fn a_question_of_an_index_that_very_many_objects_answer_does_not_hold_up_the_cache() {
    // The threads for long work are gone: what is left to them is not answered, what the cache does itself is.
    let io = Runtime::new().unwrap();
    let handle = io.handle().clone();
    io.shutdown_background();
    System::new().block_on(async move {
        let env = Env::new(handle.clone(), handle, vec![Arbiter::current()], Tuning::default());
        let cache = env.caches.of(&pods(), &View::default());
        let open = OpenPartition {
            origin: origin("c"),
            health: InformerHealth::new(),
            indexes: vec!["by-node".into(), "by-app".into()],
        };
        let opened = cache.send(open).await.unwrap();
        let mut fifo = DeltaFifo::new(usize::MAX);
        for number in 0..1_001 {
            let app = if number == 0 { "one" } else { "other" };
            let pod = object_with("ns", &number.to_string(), "u", 1, &[], &[("by-node", "n"), ("by-app", app)]);
            fifo.push(Change::Delta(delta(DeltaKind::Added, pod)));
        }
        let apply = Apply { partition: opened.id, lease: opened.lease, batch: fifo.pop(usize::MAX) };
        assert_eq!(cache.send(apply).await.unwrap().unwrap().objects, 1_001);
        let ask = async |query: Query| cache.send(Ask(query)).await.unwrap().map(|answer| answer.items.len());
        assert_eq!(ask(Query::by_index("by-app", "one")).await, Ok(1));
        assert_eq!(ask(Query::by_index("by-app", "other")).await, Ok(1_000));
        assert_eq!(ask(Query::by_index("by-node", "n")).await, Err(QueryError::Stopped));
        assert_eq!(ask(Query::list()).await, Err(QueryError::Stopped));
    });
}
