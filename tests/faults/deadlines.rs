//! Runs that only a deadline ends, half a minute at most. They wait beside one another, and beside other tests.

use crate::trial::wait_together;
use crate::{hosts, nodes, stopped};

#[test]
fn runs_end_when_their_deadline_has_passed() {
    wait_together(&[
        stopped::a_finished_run_is_done_even_if_a_rank_hangs_while_exiting,
        stopped::a_stopped_rank_ends_the_run_at_the_deadline,
        stopped::a_rank_stopped_while_texts_are_generated_is_blamed_at_the_deadline,
        stopped::a_rank_stopped_before_the_rendezvous_ends_the_run_at_init_timeout,
        hosts::a_cut_connection_ends_all_ranks_at_the_deadline,
        hosts::a_host_that_disappears_is_blamed_at_the_deadline,
        nodes::the_right_rank_is_blamed_wherever_it_is,
    ]);
}
