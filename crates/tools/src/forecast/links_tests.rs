use super::*;
use crate::forecast::measured::AllreduceRow;
use collectives::DType;
use proptest::prelude::*;

const AUTO: Engine = Engine::Gloo(Transport::Auto, AlgorithmChoice::Auto);

/// What `bench allreduce` measures where times are exactly those of a link.
fn measured(transport: Transport, choice: AlgorithmChoice, world: usize, fit: Fit, off: f64) -> Allreduce {
    let row = |shift: u32| {
        let bytes = 64_usize << shift;
        let terms = Terms::new(all_reduce_algorithm(transport, choice, &[world], bytes), world);
        let seconds = fit.seconds(terms.messages, terms.volume * bytes as f64) * off;
        AllreduceRow { bytes, algorithm: choice, transport, dtype: DType::F32, median_us: seconds * 1e6 }
    };
    Allreduce {
        world,
        rows: (0..20).step_by(4).map(row).collect(),
        copy: None,
        warnings: Vec::new(),
        cores: None,
    }
}

fn close(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-6
}

const LINK: Fit = Fit { alpha: 5e-6, per_byte: 1e-9 };

fn network(engine: Engine, within: &[Allreduce], between: Fit) -> Network {
    Network { engine, within: Links::new(within, None, None), between: Links::new(&[], Some(between), None) }
}

#[test]
fn measured_times_come_back_and_others_lie_between_them() {
    let mut file = measured(Transport::Auto, AlgorithmChoice::Auto, 4, LINK, 1.0);
    // A size that no straight line explains.
    file.rows[2].median_us *= 2.0;
    let net = network(AUTO, &[file.clone()], LINK);
    for row in &file.rows {
        assert!(close(net.all_reduce(&[4], row.bytes as f64), row.seconds()), "{row:?}");
    }
    let (low, high) = (&file.rows[3], &file.rows[4]);
    let middle = net.all_reduce(&[4], (low.bytes * 2) as f64);
    assert!(low.seconds() < middle && middle < high.seconds(), "{middle}");
}

#[test]
fn other_numbers_of_processes_follow_from_the_algorithm() {
    let ring = Engine::Gloo(Transport::Tcp, AlgorithmChoice::Ring);
    let net = network(ring, &[measured(Transport::Tcp, AlgorithmChoice::Ring, 2, LINK, 1.0)], LINK);
    for world in [3, 4, 8, 16] {
        let others = (world - 1) as f64;
        let expected = 2.0 * others * 5e-6 + 2.0 * others / world as f64 * 1e6 * 1e-9;
        assert!(close(net.all_reduce(&[world], 1e6), expected), "{world}");
    }
    assert_eq!(net.all_reduce(&[1], 1e6), 0.0);
}

#[test]
fn the_closest_number_of_processes_is_taken() {
    let of = |world, off| measured(Transport::Auto, AlgorithmChoice::Auto, world, LINK, off);
    let net = network(AUTO, &[of(2, 1.0), of(8, 3.0)], LINK);
    let one = |rounds: f64, volume: f64| volume * 1e6 * LINK.per_byte + rounds * 5e-6;
    assert!(close(net.all_reduce(&[2], 1e6), one(1.0, 2.0)));
    assert!(close(net.all_reduce(&[8], 1e6), 3.0 * one(3.0, 2.75)));
    assert!(close(net.all_reduce(&[16], 1e6), 3.0 * one(4.0, 2.875)));
}

#[test]
fn processes_beyond_the_cores_take_turns() {
    let files = [measured(Transport::Auto, AlgorithmChoice::Auto, 2, LINK, 1.0)];
    let within = Links::new(&files, None, Some(2.0));
    let net = Network { engine: AUTO, within, between: Links::default() };
    assert!(close(net.all_reduce(&[4], 1e6), 2.0 * (2.0 * 5e-6 + 2.5e6 * 1e-9)));
}

#[test]
fn nodes_are_joined_by_their_own_link() {
    let slow = Fit { alpha: 50e-6, per_byte: 8e-9 };
    let net = network(AUTO, &[measured(Transport::Auto, AlgorithmChoice::Auto, 4, LINK, 1.0)], slow);
    let inside = 2.0 * 5e-6 + 2.5 * 4e6 * 1e-9;
    // A ring of two nodes: two messages, and each byte once.
    assert!(close(net.all_reduce(&[4, 4], 4e6), inside + 2.0 * 50e-6 + 4e6 * 8e-9));
    // A node a process: no memory is shared.
    assert!(close(net.all_reduce(&[1, 1], 4e6), 2.0 * 50e-6 + 4e6 * 8e-9));
    let small = net.all_reduce(&[4, 4], 1e3);
    assert!(close(small, 2.0 * 5e-6 + 2.5e3 * 1e-9 + 50e-6 + 1e3 * 8e-9), "{small}");
    let nccl = Network { engine: Engine::Nccl, ..net };
    assert!(close(nccl.all_reduce(&[4, 4], 4e6), 14.0 * 50e-6 + 1.75 * 4e6 * 8e-9));
}

/// Two nodes of four processes, 10^6 bytes.
#[test]
fn only_what_leaves_a_node_passes_over_its_link() {
    let given = |alpha, per_byte| Links::new(&[], Some(Fit { alpha, per_byte }), None);
    let (within, between) = (given(1e-6, 1e-10), given(1e-5, 1e-9));
    let of = |engine| Network { engine, within: within.clone(), between: between.clone() };
    let inside = |messages: f64, bytes: f64| messages * 1e-6 + bytes * 1e-10;
    let outside = |messages: f64, bytes: f64| messages * 1e-5 + bytes * 1e-9;
    let tcp = |choice| of(Engine::Gloo(Transport::Tcp, choice)).all_reduce(&[4, 4], 1e6);
    // The server takes three buffers of its node and four of the other.
    assert!(close(tcp(AlgorithmChoice::ParameterServer), inside(6.0, 6e6) + outside(8.0, 8e6)));
    assert!(close(tcp(AlgorithmChoice::Tree), inside(4.0, 4e6) + outside(2.0, 2e6)));
    // Each process sends half of the buffer to the other node and takes half from there, then halves what is left.
    assert!(close(tcp(AlgorithmChoice::HalvingDoubling), inside(4.0, 0.75e6) + outside(2.0, 4e6)));
    assert!(close(tcp(AlgorithmChoice::Ring), outside(14.0, 1.75e6)));
    let notice = inside(2.0, 512.0) + outside(1.0, 4.0 * 256.0);
    let mpi = of(Engine::Mpi).all_reduce(&[4, 4], 1e6);
    assert!(close(mpi, notice + inside(4.0, 1.5e6) + outside(2.0, 1e6)), "{mpi}");
    assert!(close(of(Engine::Mpi).all_reduce(&[4, 4], 256.0), notice));
    // A ring among many would wait for each of them.
    let nccl = of(Engine::Nccl);
    assert!(close(nccl.all_reduce(&[8; 64], 64.0), inside(14.0, 0.0) + outside(12.0, 128.0)));
    assert_eq!((nccl.of_host(AUTO).engine, of(Engine::Mpi).of_host(AUTO).engine), (AUTO, Engine::Mpi));
    // The number of nodes is no matter.
    assert!(of(AUTO).all_reduce(&[1; 1 << 20], 64.0) > 0.0);
}

#[test]
fn one_size_does_not_tell_both_values() {
    let mut file = measured(Transport::Auto, AlgorithmChoice::Auto, 2, LINK, 1.0);
    file.rows.truncate(1);
    let facts = |file: &Allreduce| Links::new(std::slice::from_ref(file), None, None).facts().remove(0);
    assert!(facts(&file).ends_with("of one measured size: beta is unknown, larger buffers will take longer"));
    file.rows[0].bytes = 1 << 20;
    assert!(facts(&file).contains("alpha is unknown"));
}

#[test]
fn an_algorithm_that_was_not_measured_has_the_links_of_another() {
    let ring = Engine::Gloo(Transport::Auto, AlgorithmChoice::Ring);
    let net = network(ring, &[measured(Transport::Auto, AlgorithmChoice::Auto, 4, LINK, 1.0)], LINK);
    assert!(close(net.all_reduce(&[4], 1e6), 6.0 * 5e-6 + 1.5e6 * 1e-9));
    assert!(net.within.are_known() && !Links::default().are_known());
    assert!(net.within.facts()[0].starts_with("shared-memory, 4 processes: alpha 5.00 us, beta 1.000 GB/s"));
    assert_eq!(net.between.facts(), ["alpha 5.00 us, beta 1.000 GB/s (given)"]);
}

proptest! {
    /// More bytes, and more nodes, never take less time.
    #[test]
    fn times_grow_with_bytes_and_nodes(
        bytes in 1.0..1e9_f64, more in 1.0..4.0_f64, nodes in 2_usize..16, each in 1_usize..8,
        alpha in 1e-7..1e-3_f64, beta in 1e7..1e11_f64,
    ) {
        let link = Fit { alpha, per_byte: 1.0 / beta };
        for engine in [Engine::Nccl, Engine::Gloo(Transport::Auto, AlgorithmChoice::Ring)] {
            let within = Links::new(&[], Some(link), None);
            let net = Network { engine, within: within.clone(), between: within };
            let at = |nodes: usize, bytes: f64| net.all_reduce(&vec![each; nodes], bytes);
            prop_assert!(at(nodes, bytes * more) >= at(nodes, bytes));
            prop_assert!(at(nodes + 1, bytes) >= at(nodes, bytes));
        }
    }
}
