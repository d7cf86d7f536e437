//! Bytes that a stranger or a broken peer may send, against every decoder of the wire: no panic, no endless loop, no
//! allocation beyond the input, and what is understood is the same when it is encoded again.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ddp_run_collectives::decode_anything(bytes));
