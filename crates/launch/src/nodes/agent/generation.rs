//! One generation of this node's workers, and node 0's orders while they run.

use super::Agent;
use crate::nodes::events::{Attribution, NodeEnd, NodeFailure};
use crate::nodes::message::{Closed, Link, NodeReport, Order, Start};
use crate::{
    Controller, Ended, Endpoint, FailureCause, LocalWorkers, NodeGeneration, Recall, Signals, WorkerInput,
};
use base::error::{Error, Result};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Instant;

impl Agent {
    /// Runs one generation, from its start to its report.
    pub(super) fn generation(&mut self, start: Start, signals: &mut Signals, link: &mut Link) -> Result<()> {
        let Start { part, port } = start;
        self.generation = part.generation;
        if part.node > 0 {
            let NodeGeneration { node, nnodes, first_rank, world_size, generation, .. } = &part;
            let ranks = match first_rank + self.launch.nproc - 1 {
                last if last == *first_rank => format!("rank {last}"),
                last => format!("ranks {first_rank} to {last}"),
            };
            info!("node {node} of {nnodes}: {ranks} of {world_size}, generation {generation}");
        }
        let purpose = format!("ddp-run generation {} of {}", part.generation, part.run_id);
        let secret = self.setup.key.derived(&purpose);
        let listener = self.listener.take();
        let mut orders = Orders::new(link, std::mem::take(&mut self.orders));
        let run = self
            .rank_0(part.world_size, port)
            .and_then(|at| LocalWorkers::new(&self.launch, part, listener, at, secret))
            .and_then(|mut workers| workers.drive(signals, &mut orders));
        self.orders = orders.kept;
        let checkpoint = self.nodes.newest_checkpoint.as_ref().and_then(|newest| newest());
        let (end, port) = match run.and_then(|run| Ok((run, self.listen()?))) {
            Ok((Ended { end, signalled_at }, port)) => {
                if signalled_at.is_some() {
                    self.signalled_at = self.signalled_at.or(signalled_at);
                    self.stopped_at.get_or_insert_with(Instant::now);
                }
                (end, port)
            }
            // The other nodes receive the error, and not only the loss of this node.
            Err(e) => {
                let message = format!("{}: {}", self.name(), e.message);
                let cause = FailureCause::from_error(&e);
                let failure = NodeFailure::new(cause, Attribution::Root, message);
                // The next generation needs another socket.
                let port = if cause == FailureCause::Io { self.listen().ok() } else { None };
                let retry = port.is_some();
                (NodeEnd::Failed(NodeFailure { hint: e.hint, retry, ..failure }), port.flatten())
            }
        };
        self.done = end == NodeEnd::Done && self.nodes.limits.together;
        self.last_message_at = Instant::now();
        let ended = NodeReport::Ended { end, checkpoint, port };
        // If the connection is broken, the next read reports it.
        let _ = link.send(&ended);
        Ok(())
    }

    /// The address of rank 0.
    fn rank_0(&self, world_size: usize, port: Option<u16>) -> Result<Endpoint> {
        match (world_size, port) {
            (1, _) if self.launch.input == WorkerInput::Handoff => Ok(Endpoint::Solo),
            (_, Some(port)) => {
                Ok(Endpoint::Connect { host: self.setup.host.clone().unwrap_or_default(), port })
            }
            (_, None) => Err(Error::internal("node 0 did not send the port of rank 0")),
        }
    }
}

/// The connection to node 0 while workers are running.
struct Orders<'a> {
    link: &'a mut Link,
    /// Orders that arrived together with the start.
    queued: VecDeque<Order>,
    /// Orders that do not concern this generation.
    kept: VecDeque<Order>,
    /// The connection to node 0 is lost.
    cut_off: bool,
}

impl<'a> Orders<'a> {
    fn new(link: &'a mut Link, queued: VecDeque<Order>) -> Self {
        Self { link, queued, kept: VecDeque::new(), cut_off: false }
    }
}

impl Controller for Orders<'_> {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        (!self.cut_off).then(|| self.link.fd()).into_iter().collect()
    }

    fn stop_requested(&mut self, at_once: bool) {
        // A broken connection is detected by the next read.
        let _ = self.link.send(&NodeReport::StopRequested { at_once });
    }

    fn recalls(&mut self) -> Vec<Recall> {
        if self.cut_off {
            return Vec::new();
        }
        let came = self.link.receive::<Order>();
        self.cut_off = came == Err(Closed);
        let mut recalls = Vec::new();
        for order in self.queued.drain(..).chain(came.unwrap_or_default()) {
            match order {
                Order::Recall { how } => recalls.push(how),
                Order::Wait => {}
                other => self.kept.push_back(other),
            }
        }
        if self.cut_off {
            recalls.push(Recall::TakeDown);
        }
        recalls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separates_recalls_from_later_orders_and_recalls_once_without_node_0() {
        let (node_0, mut link) = Link::pair().expect("pair");
        let recall = |how| Order::Recall { how };
        node_0.send(&recall(Recall::TakeDown)).expect("sent");
        let mut orders = Orders::new(&mut link, [recall(Recall::Save), Order::Wait, Order::Dismissed].into());
        assert_eq!(orders.recalls(), [Recall::Save, Recall::TakeDown]);
        assert_eq!((orders.recalls(), orders.fds().len()), (vec![], 1));
        // The socket is not dropped: a process that another test starts may hold a copy of it until its `exec`.
        node_0.stream().shutdown(std::net::Shutdown::Write).expect("connected");
        assert_eq!((orders.recalls(), orders.fds().len()), (vec![Recall::TakeDown], 0));
        assert_eq!(orders.recalls(), []);
        assert_eq!(orders.kept, [Order::Dismissed]);
    }
}
