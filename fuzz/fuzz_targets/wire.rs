//! Bytes that a stranger or a broken peer may send, against every decoder of the wire: no panic, no endless loop, no
//! allocation beyond the input, and what is understood encodes to the same bytes again.
#![no_main]
#![allow(dead_code, unused_imports)]

#[path = "../../src/comm/mod.rs"]
mod comm;
#[path = "../../src/error.rs"]
mod error;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| comm::decode_anything(bytes));
