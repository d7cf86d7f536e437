//! The time of an all-reduce: by the algorithm that the engine takes, over the links within and between nodes.

use super::cost::Terms;
use super::fit::{Fit, Point};
use super::measured::Allreduce;
use collectives::Algorithm;
use collectives::gloo::{AlgorithmChoice, SMALL, Transport, all_reduce_algorithm};

/// MPICH takes recursive doubling up to this many bytes (Thakur et al., 2005).
const MPI_SMALL: usize = 2048;
/// Bytes with which the ranks of the MPI engine agree on a call.
const MPI_NOTICE: f64 = 256.0;

/// What carries out all-reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Gloo(Transport, AlgorithmChoice),
    Mpi,
    Nccl,
}

impl Engine {
    /// The algorithm of an all-reduce of `bytes` among nodes with these numbers of processes.
    pub fn algorithm(self, nodes: &[usize], bytes: usize) -> Algorithm {
        match self {
            Self::Gloo(transport, choice) => all_reduce_algorithm(transport, choice, nodes, bytes),
            Self::Mpi if bytes <= MPI_SMALL => Algorithm::Doubling,
            Self::Mpi => Algorithm::HalvingDoubling,
            Self::Nccl => Algorithm::Ring,
        }
    }

    /// For messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gloo(..) => "gloo",
            Self::Mpi => "MPI",
            Self::Nccl => "NCCL",
        }
    }

    fn by_tcp(self) -> bool {
        matches!(self, Self::Gloo(Transport::Tcp, _))
    }
}

/// The measured sizes of one algorithm between one number of processes.
#[derive(Clone, Debug)]
struct LinkCurve {
    algorithm: Algorithm,
    tcp: bool,
    world: usize,
    fit: Fit,
    /// The largest relative error of the fit.
    error: f64,
    /// By the logarithm of the bytes, ascending: the measured time as a multiple of the fitted one.
    ratios: Vec<(f64, f64)>,
}

impl LinkCurve {
    fn ratio(&self, bytes: f64) -> f64 {
        let at = bytes.max(1.0).ln();
        let after = self.ratios.partition_point(|(bytes, _)| *bytes < at);
        match (after.checked_sub(1).and_then(|before| self.ratios.get(before)), self.ratios.get(after)) {
            (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) * (at - x0) / (x1 - x0),
            (Some((_, ratio)), None) | (None, Some((_, ratio))) => *ratio,
            (None, None) => 1.0,
        }
    }
}

/// The links between processes of one node, or those between nodes.
#[derive(Clone, Debug, Default)]
pub struct Links {
    lines: Vec<LinkCurve>,
    given: Option<Fit>,
    /// Cores that the processes share; `None` if communication needs none. More processes than cores take turns.
    cores: Option<f64>,
}

impl Links {
    /// `given` in place of what was measured.
    pub fn new(measured: &[Allreduce], given: Option<Fit>, cores: Option<f64>) -> Self {
        let mut links = Self { lines: Vec::new(), given, cores };
        for file in measured {
            let rows = file.rows.iter().map(|row| {
                let algorithm = all_reduce_algorithm(row.transport, row.algorithm, &[file.world], row.bytes);
                (algorithm, row.transport == Transport::Tcp, row)
            });
            let rows: Vec<_> = rows.collect();
            let mut kinds: Vec<(Algorithm, bool)> = rows.iter().map(|(a, tcp, _)| (*a, *tcp)).collect();
            kinds.sort_by_key(|(algorithm, tcp)| (algorithm.name(), *tcp));
            kinds.dedup();
            for (algorithm, tcp) in kinds {
                let own = rows.iter().filter(|(a, t, _)| (*a, *t) == (algorithm, tcp));
                let times: Vec<(f64, f64)> = own.map(|(_, _, r)| (r.bytes as f64, r.seconds())).collect();
                links.lines.extend(links.line(algorithm, tcp, file.world, &times));
            }
        }
        links
    }

    fn line(&self, algorithm: Algorithm, tcp: bool, world: usize, times: &[(f64, f64)]) -> Option<LinkCurve> {
        let terms = self.terms(algorithm, world);
        let point = |(bytes, seconds): &(f64, f64)| Point {
            messages: terms.messages,
            bytes: terms.volume * bytes,
            seconds: *seconds,
        };
        let points: Vec<Point> = times.iter().map(point).collect();
        let fit = Fit::new(&points)?;
        let ratio = |p: &Point| p.seconds / fit.seconds(p.messages, p.bytes).max(f64::MIN_POSITIVE);
        let mut ratios: Vec<(f64, f64)> =
            times.iter().zip(&points).map(|((bytes, _), p)| (bytes.max(1.0).ln(), ratio(p))).collect();
        ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
        // A size that was measured twice: once is enough.
        ratios.dedup_by(|a, b| a.0 == b.0);
        Some(LinkCurve { algorithm, tcp, world, fit, error: fit.error(&points), ratios })
    }

    /// With the turns that processes take on too few cores.
    fn terms(&self, algorithm: Algorithm, world: usize) -> Terms {
        let Terms { messages, volume } = Terms::new(algorithm, world);
        let turns = self.cores.map_or(1.0, |cores| (world as f64 / cores).max(1.0));
        Terms { messages: messages * turns, volume: volume * turns }
    }

    /// Whether they are known by measurements.
    pub fn are_measured(&self) -> bool {
        self.given.is_none() && !self.lines.is_empty()
    }

    /// Whether anything is known of them.
    pub fn are_known(&self) -> bool {
        self.given.is_some() || !self.lines.is_empty()
    }

    /// The measured line that is closest to what is asked: of the same algorithm if there is one, then over the same medium,
    /// then of the closest number of processes.
    fn closest(&self, algorithm: Algorithm, tcp: bool, world: usize) -> Option<&LinkCurve> {
        let distance = |line: &LinkCurve| {
            let worlds = (line.world as f64 / world as f64).ln().abs();
            (u8::from(line.tcp != tcp), u8::from(line.algorithm != algorithm), worlds)
        };
        self.lines.iter().min_by(|a, b| {
            let (a, b) = (distance(a), distance(b));
            (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2))
        })
    }

    /// Seconds of an all-reduce of `bytes` between `world` processes that all use these links.
    fn seconds(&self, algorithm: Algorithm, tcp: bool, world: usize, bytes: f64) -> f64 {
        let terms = self.terms(algorithm, world);
        let of = |fit: &Fit| fit.seconds(terms.messages, terms.volume * bytes);
        match (&self.given, self.closest(algorithm, tcp, world)) {
            (Some(given), _) => of(given),
            (None, Some(line)) if (line.algorithm, line.tcp) == (algorithm, tcp) => {
                of(&line.fit) * line.ratio(bytes)
            }
            (None, Some(line)) => of(&line.fit),
            (None, None) => 0.0,
        }
    }

    /// A link by itself: what was given, else the measured line over TCP with the most ranks, or any.
    fn link(&self) -> Fit {
        let line =
            self.lines.iter().max_by_key(|line| (line.tcp, line.algorithm == Algorithm::Ring, line.world));
        self.given.or(line.map(|line| line.fit)).unwrap_or(Fit { alpha: 0.0, per_byte: 0.0 })
    }

    /// What is known of them, a line each.
    pub fn facts(&self) -> Vec<String> {
        let shown = |fit: &Fit| {
            let beta = if fit.per_byte > 0.0 {
                format!("{:.3} GB/s", 1e-9 / fit.per_byte)
            } else {
                "no bound".to_owned()
            };
            format!("alpha {:.2} us, beta {beta}", fit.alpha * 1e6)
        };
        if let Some(given) = &self.given {
            return vec![format!("{} (given)", shown(given))];
        }
        let line = |line: &LinkCurve| {
            let tcp = if line.tcp { " over TCP" } else { "" };
            let (name, world, fit) = (line.algorithm, line.world, shown(&line.fit));
            let sound = match (line.ratios.len(), line.fit.per_byte > 0.0) {
                (1, false) => {
                    "of one measured size: beta is unknown, larger buffers will take longer".to_owned()
                }
                (1, true) => {
                    "of one measured size: alpha is unknown, smaller buffers will take longer".to_owned()
                }
                _ => format!("the fit is off by up to {:.0} %", line.error * 100.0),
            };
            format!("{name}{tcp}, {world} processes: {fit}; {sound}")
        };
        self.lines.iter().map(line).collect()
    }
}

/// All links of a cluster.
#[derive(Clone, Debug)]
pub struct Network {
    pub engine: Engine,
    pub within: Links,
    pub between: Links,
}

impl Network {
    /// What passes values of host memory, such as a step's sums: NCCL leaves them to gloo.
    pub fn of_host(&self, gloo: Engine) -> Self {
        let engine = if self.engine == Engine::Nccl { gloo } else { self.engine };
        Self { engine, ..self.clone() }
    }

    /// Seconds of an all-reduce of `bytes` among nodes with these numbers of processes, which are equal.
    pub fn all_reduce(&self, nodes: &[usize], bytes: f64) -> f64 {
        let algorithm = self.engine.algorithm(nodes, bytes as usize);
        match nodes.iter().sum::<usize>() {
            0 | 1 => 0.0,
            // Its ranks first agree on the call, unless that has room for the buffer.
            _ if self.engine == Engine::Mpi && bytes > MPI_NOTICE => {
                let call = Engine::Mpi.algorithm(nodes, MPI_NOTICE as usize);
                self.by(call, nodes, MPI_NOTICE) + self.by(algorithm, nodes, bytes)
            }
            _ => self.by(algorithm, nodes, bytes),
        }
    }

    fn by(&self, algorithm: Algorithm, nodes: &[usize], bytes: f64) -> f64 {
        let each = nodes.iter().copied().max().unwrap_or(0);
        match nodes.len() {
            1 => self.within.seconds(algorithm, self.engine.by_tcp(), each, bytes),
            _ if algorithm == Algorithm::Hierarchical => self.hierarchical(nodes.len(), each, bytes),
            _ => self.across(algorithm, nodes.len(), each, bytes),
        }
    }

    /// In shared memory within each node; between nodes each process has its part of the buffer, or the first one has all.
    fn hierarchical(&self, nodes: usize, each: usize, bytes: f64) -> f64 {
        let inside = match each {
            1 => 0.0,
            _ => self.within.seconds(Algorithm::Memory, false, each, bytes),
        };
        let small = SMALL as f64;
        let part = if bytes > small { bytes / each as f64 } else { bytes };
        let algorithm = if part <= small { Algorithm::Doubling } else { Algorithm::Ring };
        let terms = Terms::new(algorithm, nodes);
        // The parts of all processes of a node pass over its link together.
        inside + self.between.link().seconds(terms.messages, terms.volume * bytes)
    }

    /// An algorithm among all processes, in which `each` of a node use its link.
    fn across(&self, algorithm: Algorithm, nodes: usize, each: usize, bytes: f64) -> f64 {
        let link = self.between.link();
        let over = |ranks: usize, bytes: f64| {
            let terms = Terms::new(algorithm, ranks);
            link.seconds(terms.messages, terms.volume * bytes)
        };
        let inside = |bytes: f64| match (each, self.within.are_known()) {
            (1, _) | (_, false) => 0.0,
            _ => self.within.seconds(algorithm, self.engine.by_tcp(), each, bytes),
        };
        match (algorithm, self.engine) {
            // NCCL takes what is faster.
            (_, Engine::Nccl) => over(nodes * each, bytes).min(self.trees(nodes, each, bytes)),
            // One process of each node sends to the next node, the others within theirs.
            (Algorithm::Ring | Algorithm::Library, _) => over(nodes * each, bytes),
            // The first processes of the nodes are a tree.
            (Algorithm::Tree, _) => inside(bytes) + over(nodes, bytes),
            // In the rounds between nodes all processes of a node send at once; the others stay within.
            (Algorithm::Doubling, _) => inside(bytes) + over(nodes, bytes * each as f64),
            // MPICH halves between neighbours first, so that a process has only its node's part for other nodes.
            (Algorithm::HalvingDoubling, Engine::Mpi) => inside(bytes) + over(nodes, bytes),
            // The gloo engine halves between those that are farthest apart first.
            (Algorithm::HalvingDoubling, _) => {
                inside(bytes / nodes as f64) + over(nodes, bytes * each as f64)
            }
            // Those of other nodes pass over the link of the server's node, both ways.
            _ => {
                let others = 2.0 * (nodes * each - each) as f64;
                inside(bytes) + link.seconds(others, others * bytes)
            }
        }
    }

    fn trees(&self, nodes: usize, each: usize, bytes: f64) -> f64 {
        let (between, within) = Terms::of_trees(nodes, each);
        self.between.link().seconds(between.messages, between.volume * bytes)
            + self.within.link().seconds(within.messages, within.volume * bytes)
    }
}

#[cfg(test)]
#[path = "links_tests.rs"]
mod tests;
